/* What an array holds, and the usual way to make one, compiled. The twin in Python, _array_memory.py, says what the class
 * does; both pass the same tests. `usual_empty` is the twin of `allotment.factories.empty`, to which it leaves the rest.
 */
#include "_native.h"

typedef struct {
    PyObject_HEAD
    PyObject *account;   /* who takes the memory back; None of memory of another owner, and once it was given back */
    PyObject *capacity;
    PyObject *ptr;
    PyObject *shape;
    PyObject *dtype;
    PyObject *device;
    PyObject *owner;
    PyObject *strides;
    PyObject *kind;
    PyObject *readonly;
} ArrayMemory;

static PyObject *str_allocate, *str_deallocate, *str_memory_kind, *str_name, *str_supply,
    *report_lost_block, *zero, *two;

/* Fill an array that holds nothing yet. Steals `ptr` alone. */
static void
fill(ArrayMemory *self, PyObject *ptr, PyObject *shape, PyObject *dtype, PyObject *device, PyObject *account,
     PyObject *capacity, PyObject *owner, PyObject *strides, PyObject *readonly)
{
    self->ptr = ptr;
    self->shape = Py_NewRef(shape);
    self->dtype = Py_NewRef(dtype);
    self->device = Py_NewRef(device);
    self->account = Py_NewRef(account);
    self->capacity = Py_NewRef(capacity);
    self->owner = Py_NewRef(owner);
    self->strides = Py_NewRef(strides);
    self->readonly = Py_NewRef(readonly);
}

static int
memory_init(ArrayMemory *self, PyObject *arguments, PyObject *keywords)
{
    static char *names[] = {"ptr",   "shape",   "dtype", "device",   "account", "capacity",
                            "owner", "strides", "kind",  "readonly", NULL};
    PyObject *ptr, *shape, *dtype, *device, *account = Py_None, *capacity = zero, *owner = Py_None, *strides = Py_None,
             *kind = Py_None, *readonly = Py_False;
    if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "OOOO|OOOOOO:Array", names, &ptr, &shape, &dtype, &device,
                                     &account, &capacity, &owner, &strides, &kind, &readonly)) {
        return -1;
    }
    Py_XSETREF(self->ptr, Py_NewRef(ptr));
    Py_XSETREF(self->shape, Py_NewRef(shape));
    Py_XSETREF(self->dtype, Py_NewRef(dtype));
    Py_XSETREF(self->device, Py_NewRef(device));
    Py_XSETREF(self->account, Py_NewRef(account));
    Py_XSETREF(self->capacity, Py_NewRef(capacity));
    Py_XSETREF(self->owner, Py_NewRef(owner));
    Py_XSETREF(self->strides, Py_NewRef(strides));
    Py_XSETREF(self->kind, Py_NewRef(kind));
    Py_XSETREF(self->readonly, Py_NewRef(readonly));
    return 0;
}

static int
takes(const char *method, Py_ssize_t wanted, Py_ssize_t given)
{
    if (given != wanted) {
        PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, and was given %zd", method, wanted, given);
    }
    return given == wanted;
}

/* Return a new array of a class in memory that the account allocates now. */
static PyObject *
allocated(PyTypeObject *type, PyObject *account, PyObject *nbytes, PyObject *shape, PyObject *dtype, PyObject *device)
{
    PyObject *kind = PyObject_GetAttr(account, str_memory_kind);
    if (kind == NULL) {
        return NULL;
    }
    ArrayMemory *self = (ArrayMemory *)type->tp_alloc(type, 0);
    PyObject *ptr = self == NULL ? NULL : PyObject_CallMethodOneArg(account, str_allocate, nbytes);
    if (ptr == NULL) {
        Py_DECREF(kind);
        Py_XDECREF(self);
        return NULL;
    }
    fill(self, ptr, shape, dtype, device, account, nbytes, Py_None, Py_None, Py_False);
    self->kind = kind;
    return (PyObject *)self;
}

PyDoc_STRVAR(viewing_doc, "_viewing($type, array, ptr, shape, strides, dtype, /)\n--\n\n"
                          "Return a new array over memory of another one, which it keeps alive.");

static PyObject *
memory_viewing(PyTypeObject *type, PyObject *const *arguments, Py_ssize_t count)
{
    if (!takes("_viewing", 5, count)) {
        return NULL;
    }
    ArrayMemory *of = (ArrayMemory *)arguments[0];
    if (!PyObject_TypeCheck(of, type) || !of->device || !of->owner || !of->kind || !of->readonly) {
        PyErr_Format(PyExc_TypeError, "_viewing() takes an initialised %s", type->tp_name);
        return NULL;
    }
    ArrayMemory *self = (ArrayMemory *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    PyObject *owner = PyObject_TypeCheck(of->owner, type) ? of->owner : (PyObject *)of;
    fill(self, Py_NewRef(arguments[1]), arguments[2], arguments[4], of->device, Py_None, zero, owner, arguments[3],
         of->readonly);
    self->kind = Py_NewRef(of->kind);
    return (PyObject *)self;
}

/* Tell the user that a free failed. The warning is about the line that dropped the array. */
static int
report(PyObject *account, PyObject *ptr, PyObject *capacity)
{
    PyObject *error = take_exception();
    PyObject *name = PyObject_GetAttr(account, str_name);
    PyObject *owner = name == NULL ? NULL : PyUnicode_FromFormat("allocator %R", name);
    PyObject *done = NULL;
    if (owner != NULL) {
        PyObject *arguments[] = {ptr, capacity, owner, error, two};
        done = PyObject_Vectorcall(report_lost_block, arguments, 5, NULL);
    }
    Py_XDECREF(name);
    Py_XDECREF(owner);
    Py_XDECREF(error);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

static int
holds_memory(ArrayMemory *self)
{
    return self->account != NULL && self->account != Py_None && self->ptr != NULL && self->capacity != NULL;
}

static int
give_back(ArrayMemory *self)
{
    if (!holds_memory(self)) {
        return 0;
    }
    PyObject *account = self->account, *ptr = Py_NewRef(self->ptr), *capacity = Py_NewRef(self->capacity);
    self->account = Py_NewRef(Py_None);
    PyObject *arguments[] = {account, ptr, capacity};
    PyObject *done = PyObject_VectorcallMethod(str_deallocate, arguments, 3, NULL);
    int result = done == NULL ? report(account, ptr, capacity) : 0;
    Py_XDECREF(done);
    Py_DECREF(account);
    Py_DECREF(ptr);
    Py_DECREF(capacity);
    return result;
}

PyDoc_STRVAR(discard_doc, "discard($self, /)\n--\n\n"
                          "Give the memory of an array back that nobody uses, though somebody may hold it: the frames "
                          "of a traceback do.");

static PyObject *
memory_discard(ArrayMemory *self, PyObject *Py_UNUSED(none))
{
    return give_back(self) < 0 ? NULL : Py_NewRef(Py_None);
}

static void
memory_finalize(ArrayMemory *self)
{
    if (!holds_memory(self)) {
        return;
    }
    PyObject *in_flight = PyErr_Occurred() ? take_exception() : NULL;
    if (give_back(self) < 0) {
        PyErr_WriteUnraisable((PyObject *)self);
    }
    if (in_flight != NULL) {
        restore_exception(in_flight);
    }
}

static int
memory_traverse(ArrayMemory *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->account);
    Py_VISIT(self->capacity);
    Py_VISIT(self->ptr);
    Py_VISIT(self->shape);
    Py_VISIT(self->dtype);
    Py_VISIT(self->device);
    Py_VISIT(self->owner);
    Py_VISIT(self->strides);
    Py_VISIT(self->kind);
    Py_VISIT(self->readonly);
    return 0;
}

static int
memory_clear(ArrayMemory *self)
{
    Py_CLEAR(self->account);
    Py_CLEAR(self->capacity);
    Py_CLEAR(self->ptr);
    Py_CLEAR(self->shape);
    Py_CLEAR(self->dtype);
    Py_CLEAR(self->device);
    Py_CLEAR(self->owner);
    Py_CLEAR(self->strides);
    Py_CLEAR(self->kind);
    Py_CLEAR(self->readonly);
    return 0;
}

static void
memory_dealloc(ArrayMemory *self)
{
    PyTypeObject *type = Py_TYPE(self);
    if (type->tp_dealloc == (destructor)memory_dealloc && PyObject_CallFinalizerFromDealloc((PyObject *)self) < 0) {
        return;  /* a finaliser kept it; a class built on this one has called its own before it comes here */
    }
    PyObject_GC_UnTrack(self);
    memory_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef memory_members[] = {
    {"_account", T_OBJECT_EX, offsetof(ArrayMemory, account), 0, NULL},
    {"_capacity", T_OBJECT_EX, offsetof(ArrayMemory, capacity), 0, NULL},
    {"_owner", T_OBJECT_EX, offsetof(ArrayMemory, owner), 0, NULL},
    {"_strides", T_OBJECT_EX, offsetof(ArrayMemory, strides), 0, NULL},
    {"_kind", T_OBJECT_EX, offsetof(ArrayMemory, kind), 0, NULL},
    {"ptr", T_OBJECT_EX, offsetof(ArrayMemory, ptr), 0, NULL},
    {"shape", T_OBJECT_EX, offsetof(ArrayMemory, shape), 0, NULL},
    {"dtype", T_OBJECT_EX, offsetof(ArrayMemory, dtype), 0, NULL},
    {"device", T_OBJECT_EX, offsetof(ArrayMemory, device), 0, NULL},
    {"readonly", T_OBJECT_EX, offsetof(ArrayMemory, readonly), 0, NULL},
    {NULL},
};

static PyMethodDef memory_methods[] = {
    {"_viewing", (PyCFunction)(void (*)(void))memory_viewing, METH_CLASS | METH_FASTCALL, viewing_doc},
    {"discard", (PyCFunction)memory_discard, METH_NOARGS, discard_doc},
    {NULL},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_doc, "What an array holds, and how it gives its memory back."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_init, memory_init},
    {Py_tp_finalize, memory_finalize},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_traverse, memory_traverse},
    {Py_tp_clear, memory_clear},
    {Py_tp_members, memory_members},
    {Py_tp_methods, memory_methods},
    {0, NULL},
};

static PyType_Spec memory_spec = {
    "allotment._array_memory_native.ArrayMemory", sizeof(ArrayMemory), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, memory_slots};

/* What `usual_empty` knows, in the order of its arguments. */
enum { ARRAY, DEVICE, FIND_DEVICE, ELEMENT_TYPES, SCOPES, EMPTY, KNOWN };

/* Borrow the account in force, or NULL, without an exception, where it must be chosen. The device keeps it. */
static PyObject *
account_in_force(PyObject *const *known, PyObject *device)
{
    PyObject *scopes;
    if (PyContextVar_Get(known[SCOPES], NULL, &scopes) < 0) {
        return NULL;
    }
    int entered = PyTuple_GET_SIZE(scopes) > 0;
    Py_DECREF(scopes);
    return entered ? NULL : PyObject_GetAttr(device, str_supply);
}

/* A shape as a tuple. New reference; NULL, perhaps without an exception, if it is neither an int nor a tuple. */
static PyObject *
as_tuple(PyObject *shape)
{
    if (PyTuple_CheckExact(shape)) {
        return Py_NewRef(shape);
    }
    return PyLong_CheckExact(shape) ? PyTuple_Pack(1, shape) : NULL;
}

/* The bytes of an array, or -1 if its shape is not one of plain positive integers or it is too large. */
static long long
size_in_bytes(PyObject *shape, long long size)
{
    for (Py_ssize_t axis = 0; size > 0 && axis < PyTuple_GET_SIZE(shape); axis++) {
        PyObject *extent = PyTuple_GET_ITEM(shape, axis);
        int overflow = 0;
        long long count = PyLong_CheckExact(extent) ? PyLong_AsLongLongAndOverflow(extent, &overflow) : -1;
        size = count > 0 && !overflow && size <= LLONG_MAX / count ? size * count : -1;
    }
    return size;
}

/* Make an array; NULL without an exception where something is unusual. */
static PyObject *
empty_usually(PyObject *const *known, PyObject *shape, PyObject *dtype, PyObject *device)
{
    PyObject *element = Py_XNewRef(PyDict_GetItemWithError(known[ELEMENT_TYPES], dtype)), *array = NULL;
    long long size = element == NULL ? -1 : size_in_bytes(shape, PyLong_AsLongLong(PyTuple_GET_ITEM(element, 1)));
    PyObject *account = size < 0 ? NULL : account_in_force(known, device);
    if (account == NULL || account == Py_None) {
        PyErr_Clear(); /* whatever it was, it will come again */
    }
    else {
        PyObject *nbytes = PyLong_FromLongLong(size);
        if (nbytes != NULL) {
            PyTypeObject *type = (PyTypeObject *)known[ARRAY];
            array = allocated(type, account, nbytes, shape, PyTuple_GET_ITEM(element, 0), device);
            Py_DECREF(nbytes);
        }
    }
    Py_XDECREF(element);
    Py_XDECREF(account);
    return array;
}

static PyObject *
empty_of(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (!takes("empty", 4, count)) {
        return NULL;
    }
    PyObject *const *known = &PyTuple_GET_ITEM(self, 0);
    PyObject *device = arguments[2], *array = NULL;
    if (Py_IS_TYPE(device, (PyTypeObject *)known[DEVICE])) {
        Py_INCREF(device);
    }
    else if ((device = PyObject_CallOneArg(known[FIND_DEVICE], device)) == NULL) {
        return NULL;
    }
    PyObject *shape = arguments[3] == Py_False ? as_tuple(arguments[0]) : NULL;
    if (shape != NULL) {
        array = empty_usually(known, shape, arguments[1], device);
        Py_DECREF(shape);
    }
    if (array == NULL && !PyErr_Occurred()) {
        PyObject *stack[] = {arguments[0], arguments[1], device, arguments[3]};
        array = PyObject_Vectorcall(known[EMPTY], stack, 4, NULL);
    }
    Py_DECREF(device);
    return array;
}

static PyMethodDef empty_def = {"empty", (PyCFunction)(void (*)(void))empty_of, METH_FASTCALL, NULL};

PyDoc_STRVAR(usual_empty_doc,
             "usual_empty($module, array, device, find_device, element_types, scopes, empty, /)\n--\n\n"
             "Return a function that does what `empty` does, sooner where nothing is unusual.");

static PyObject *
usual_empty(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    return takes("usual_empty", KNOWN, PyTuple_GET_SIZE(arguments)) ? PyCFunction_New(&empty_def, arguments) : NULL;
}

static PyMethodDef module_methods[] = {
    {"usual_empty", usual_empty, METH_VARARGS, usual_empty_doc},
    {NULL},
};

static int
bind_names(void)
{
    if (intern(&str_supply, "supply") < 0 || intern(&str_allocate, "allocate") < 0 || intern(&str_deallocate, "deallocate") < 0
        || intern(&str_memory_kind, "memory_kind") < 0 || intern(&str_name, "name") < 0) {
        return -1;
    }
    Py_XSETREF(zero, PyLong_FromLong(0));
    Py_XSETREF(two, PyLong_FromLong(2));
    PyObject *module = PyImport_ImportModule("allotment._foreign_memory");
    if (zero == NULL || two == NULL || module == NULL) {
        Py_XDECREF(module);
        return -1;
    }
    Py_XSETREF(report_lost_block, PyObject_GetAttrString(module, "report_lost_block"));
    Py_DECREF(module);
    return report_lost_block == NULL ? -1 : 0;
}

static int
module_exec(PyObject *module)
{
    if (bind_names() < 0) {
        return -1;
    }
    PyObject *array_memory = PyType_FromSpec(&memory_spec);
    int result = array_memory == NULL ? -1 : PyModule_AddObjectRef(module, "ArrayMemory", array_memory);
    Py_XDECREF(array_memory);
    return result;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "allotment._array_memory_native",
    .m_doc = "What an array holds, and the usual way to make one, compiled.",
    .m_methods = module_methods,
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__array_memory_native(void)
{
    return PyModuleDef_Init(&module_def);
}
