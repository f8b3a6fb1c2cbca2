/* What the compiled twins of core share. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

/* Take the exception that is set, as an object with its traceback. */
static inline PyObject *
take_exception(void)
{
#if PY_VERSION_HEX >= 0x030C0000
    return PyErr_GetRaisedException();
#else
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (traceback != NULL) {
        PyException_SetTraceback(value, traceback);
    }
    Py_XDECREF(type);
    Py_XDECREF(traceback);
    return value;
#endif
}

/* Set an exception that was taken. Steals it. */
static inline void
restore_exception(PyObject *error)
{
#if PY_VERSION_HEX >= 0x030C0000
    PyErr_SetRaisedException(error);
#else
    PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(error)), error, PyException_GetTraceback(error));
#endif
}

static inline int
intern(PyObject **name, const char *text)
{
    if (*name == NULL) {
        *name = PyUnicode_InternFromString(text);
    }
    return *name == NULL ? -1 : 0;
}

/* A slot of a class, found once: reading an attribute by its name costs several times as much. */
typedef struct {
    PyTypeObject *type; /* borrowed, and only compared */
    unsigned int version;
    Py_ssize_t offset; /* 0 where the attribute is none */
} Slot;

static inline void
find_slot(Slot *slot, PyTypeObject *type, PyObject *name)
{
    PyObject *found = PyObject_GetAttr((PyObject *)type, name);
    slot->type = type, slot->version = type->tp_version_tag, slot->offset = 0;
    if (found == NULL) {
        PyErr_Clear();
    }
    else if (Py_IS_TYPE(found, &PyMemberDescr_Type)) {
        PyMemberDef *member = ((PyMemberDescrObject *)found)->d_member;
        slot->offset = member->type == T_OBJECT_EX ? member->offset : 0;
    }
    Py_XDECREF(found);
}

/* An attribute. New reference. */
static inline PyObject *
get_slot(PyObject *object, Slot *slot, PyObject *name)
{
    PyTypeObject *type = Py_TYPE(object);
    if (slot->type != type || slot->version != type->tp_version_tag || slot->version == 0) {
        find_slot(slot, type, name);
    }
    PyObject *found = slot->offset == 0 ? NULL : *(PyObject **)((char *)object + slot->offset);
    return found == NULL ? PyObject_GetAttr(object, name) : Py_NewRef(found);
}
