/* Calls that go straight to an allocator, compiled. The twin in Python, _express.py, says what they do; both pass the same
 * tests.
 */
#include "../_native.h"

static PyObject *str_is_direct, *str_ptr, *str_supply, *zero;

/* What the function knows, in the order of the arguments of `express`. */
enum { LANES, SCOPES, CURRENT_DEVICE, DEVICE_FUNCTION, OTHERWISE, KNOWN };
/* What a lane is made of. */
enum { DEVICE, ACCOUNT, MAKE, GIVEN, WRAP, PARTS };
/* The most that what makes a block can be given, with the size. */
enum { MOST_GIVEN = 8 };

typedef int (*DeviceFunction)(int);

/* The number of the current device, or -1 with an exception. */
static long
current_device(PyObject *known)
{
    DeviceFunction function = (DeviceFunction)PyLong_AsVoidPtr(PyTuple_GET_ITEM(known, DEVICE_FUNCTION));
    if (function != NULL) {
        return function(0);
    }
    PyObject *found = PyErr_Occurred() ? NULL : PyObject_CallNoArgs(PyTuple_GET_ITEM(known, CURRENT_DEVICE));
    long ordinal = found == NULL ? -1 : PyLong_AsLong(found);
    Py_XDECREF(found);
    return ordinal;
}

static Slot is_direct_slot, supply_slot;

/* Whether an attribute is a certain object; -1 with an exception. */
static int
attribute_is(PyObject *object, Slot *slot, PyObject *name, PyObject *wanted)
{
    PyObject *found = get_slot(object, slot, name);
    int is_wanted = found == NULL ? -1 : found == wanted;
    Py_XDECREF(found);
    return is_wanted;
}

/* Whether a lane's allocator is the one in force; -1 with an exception. */
static int
is_in_force(PyObject *variable, PyObject *lane)
{
    if (variable == Py_None) {
        return 1;
    }
    PyObject *scopes = NULL;
    if (PyContextVar_Get(variable, NULL, &scopes) < 0) {
        return -1;
    }
    int entered = PyTuple_GET_SIZE(scopes) > 0;
    Py_DECREF(scopes);
    PyObject *device = PyTuple_GET_ITEM(lane, DEVICE);
    return entered ? 0 : attribute_is(device, &supply_slot, str_supply, PyTuple_GET_ITEM(lane, ACCOUNT));
}

static int
is_open(PyObject *known, PyObject *lane)
{
    if (!PyTuple_CheckExact(lane) || PyTuple_GET_SIZE(lane) != PARTS
        || !PyTuple_CheckExact(PyTuple_GET_ITEM(lane, GIVEN)) || PyTuple_GET_SIZE(PyTuple_GET_ITEM(lane, GIVEN)) >= MOST_GIVEN) {
        return 0;
    }
    int is_direct = attribute_is(PyTuple_GET_ITEM(lane, ACCOUNT), &is_direct_slot, str_is_direct, Py_True);
    return is_direct == 1 ? is_in_force(PyTuple_GET_ITEM(known, SCOPES), lane) : is_direct;
}

/* Make a block by a lane. */
static PyObject *
make(PyObject *lane, PyObject *size)
{
    PyObject *given = PyTuple_GET_ITEM(lane, GIVEN), *arguments[MOST_GIVEN] = {size};
    Py_ssize_t count = PyTuple_GET_SIZE(given);
    for (Py_ssize_t i = 0; i < count; i++) {
        arguments[i + 1] = PyTuple_GET_ITEM(given, i);
    }
    return PyObject_Vectorcall(PyTuple_GET_ITEM(lane, MAKE), arguments, count + 1, NULL);
}

/* Whether a block that was made has memory; -1 with an exception. */
static int
has_memory(PyObject *made)
{
    PyObject *ptr = PyObject_GetAttr(made, str_ptr);
    int is_there = ptr == NULL ? -1 : PyObject_IsTrue(ptr);
    Py_XDECREF(ptr);
    return is_there;
}

/* What a lane allocates; NULL without an exception if it is not open or has no memory. */
static PyObject *
by_lane(PyObject *known, PyObject *lane, PyObject *size)
{
    PyObject *made = is_open(known, lane) == 1 ? make(lane, size) : NULL, *wrapped = NULL;
    if (made != NULL && has_memory(made) == 1) {
        PyObject *arguments[] = {made, zero};
        wrapped = PyObject_Vectorcall(PyTuple_GET_ITEM(lane, WRAP), arguments, 2, NULL);
    }
    Py_XDECREF(made);
    return wrapped;
}

static PyObject *
allocate(PyObject *known, PyObject *size)
{
    long ordinal = current_device(known);
    if (ordinal < 0 && PyErr_Occurred()) {
        return NULL;
    }
    PyObject *lanes = PyTuple_GET_ITEM(known, LANES), *made = NULL;
    if (ordinal >= 0 && ordinal < PyList_GET_SIZE(lanes)) {
        PyObject *lane = Py_NewRef(PyList_GET_ITEM(lanes, ordinal));
        made = by_lane(known, lane, size);
        Py_DECREF(lane);
    }
    if (made == NULL && !PyErr_Occurred()) {
        made = PyObject_CallOneArg(PyTuple_GET_ITEM(known, OTHERWISE), size);
    }
    return made;
}

static PyMethodDef allocate_def = {"allocate", allocate, METH_O, NULL};

PyDoc_STRVAR(express_doc, "express($module, lanes, scopes, current_device, device_function, otherwise, /)\n--\n\n"
                          "Return a function that allocates by the lane of the current device, or by ``otherwise``.");

static PyObject *
express(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    if (PyTuple_GET_SIZE(arguments) != KNOWN) {
        return PyErr_Format(PyExc_TypeError, "express() takes %d arguments, and was given %zd", KNOWN,
                            PyTuple_GET_SIZE(arguments));
    }
    if (!PyList_CheckExact(PyTuple_GET_ITEM(arguments, LANES))) {
        return PyErr_Format(PyExc_TypeError, "express() takes a list of lanes");
    }
    return PyCFunction_New(&allocate_def, arguments);
}

static PyMethodDef module_methods[] = {
    {"express", express, METH_VARARGS, express_doc},
    {NULL},
};

static int
module_exec(PyObject *Py_UNUSED(module))
{
    Py_XSETREF(zero, PyLong_FromLong(0));
    int failed = zero == NULL || intern(&str_is_direct, "is_direct") < 0 || intern(&str_ptr, "ptr") < 0
                 || intern(&str_supply, "supply") < 0;
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "allotment.bridges._express_native",
    .m_doc = "Calls that go straight to an allocator, compiled.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__express_native(void)
{
    return PyModuleDef_Init(&module_def);
}
