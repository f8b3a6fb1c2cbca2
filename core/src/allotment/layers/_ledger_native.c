/* The hot path of the accounts, compiled. Its twin in Python, _ledger.py, says what it does; both pass the same tests.
 *
 * A ledger knows which blocks are live and calls the allocator. All that is unusual is left to methods of the class
 * built on it (see accounting.py): what a request of an odd size means, what a failure becomes, what to say of a bad
 * pointer. Between two calls of the allocator nothing here gives up the interpreter lock, so no lock of its own is needed.
 */
#include "../_native.h"

/* cuMemAllocFromPoolAsync, cuMemFreeAsync and cuCtxGetDevice, whose addresses a platform with a driver gives. */
typedef int (*MallocFromPool)(unsigned long long *, size_t, void *, void *);
typedef int (*FreeAsync)(unsigned long long, void *);
typedef int (*CurrentDevice)(int *);

typedef struct {
    PyObject_HEAD
    PyObject *live;          /* dict: address -> size, or (size, stream) */
    PyObject *allocate;      /* the allocator's two calls */
    PyObject *deallocate;
    PyObject *device;        /* whose stream counts, its scopes, and how it is found when scopes are entered */
    PyObject *stream_scopes;
    PyObject *find_stream;
    PyObject *pool;          /* a pool's handle: the calls are cudaMallocFromPoolAsync and cudaFreeAsync themselves */
    unsigned long long malloc_from_pool, free_async, current_device; /* the driver's functions, or 0 */
    int ordinal; /* of the device that must be current for them; -1 where there is no other */
    unsigned long long largest;
    unsigned long long current, peak, allocations, frees;
} Ledger;

static PyObject *str_allocate_unusual, *str_allocate_unusual_on, *str_refuse, *str_reject, *str_refuse_free,
    *str_free_failed, *str_stream_in_place, *str_handle;

static Slot stream_in_place_slot, handle_slot;

/* Call a method that must raise; return NULL with its exception, or with one that says that it did not. */
static PyObject *
raise_by(Ledger *self, PyObject *method, PyObject *const *arguments, size_t count)
{
    PyObject *stack[5] = {(PyObject *)self};
    for (size_t i = 0; i < count; i++) {
        stack[i + 1] = arguments[i];
    }
    PyObject *result = PyObject_VectorcallMethod(method, stack, count + 1, NULL);
    if (result != NULL) {
        Py_DECREF(result);
        PyErr_Format(PyExc_SystemError, "%U did not raise", method);
    }
    return NULL;
}

/* Whether a size is a plain int from 1 to the largest that can be had, and which. */
static int
usual_size(Ledger *self, PyObject *size, unsigned long long *nbytes)
{
    if (!PyLong_CheckExact(size)) {
        return 0;
    }
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(size, &overflow);
    *nbytes = (unsigned long long)value;
    return !overflow && value > 0 && *nbytes <= self->largest;
}

static PyObject *
refuse(Ledger *self, PyObject *size)
{
    if (!PyErr_ExceptionMatches(PyExc_Exception)) {
        return NULL;
    }
    PyObject *error = take_exception();
    PyObject *arguments[] = {error, size};
    raise_by(self, str_refuse, arguments, 2);
    Py_DECREF(error);
    return NULL;
}

/* Book a new block, after checking that it can be one. Steals `ptr`. */
static PyObject *
book(Ledger *self, PyObject *ptr, PyObject *entry, unsigned long long nbytes)
{
    int overflow = 0;
    if (!PyLong_CheckExact(ptr) || (PyLong_AsLongLongAndOverflow(ptr, &overflow) <= 0 && overflow <= 0)) {
        raise_by(self, str_reject, &ptr, 1);
        goto failed;
    }
    Py_ssize_t blocks = PyDict_GET_SIZE(self->live);
    if (PyDict_SetDefault(self->live, ptr, entry) == NULL) {
        goto failed;
    }
    if (PyDict_GET_SIZE(self->live) == blocks) { /* it was live already */
        raise_by(self, str_reject, &ptr, 1);
        goto failed;
    }
    self->allocations++;
    self->current += nbytes;
    if (self->current > self->peak) {
        self->peak = self->current;
    }
    return ptr;
failed:
    Py_DECREF(ptr);
    return NULL;
}

PyDoc_STRVAR(allocate_doc, "allocate($self, size_in_bytes, /)\n--\n\nReturn the address of a new block.");

static PyObject *
ledger_allocate(Ledger *self, PyObject *size)
{
    unsigned long long nbytes;
    if (!usual_size(self, size, &nbytes)) {
        return PyObject_CallMethodOneArg((PyObject *)self, str_allocate_unusual, size);
    }
    PyObject *ptr = PyObject_CallOneArg(self->allocate, size);
    return ptr == NULL ? refuse(self, size) : book(self, ptr, size, nbytes);
}

/* The stream in force on the device: without scopes, what the device keeps; else what Python finds. New reference. */
static PyObject *
stream_in_force(Ledger *self)
{
    PyObject *scopes;
    if (PyContextVar_Get(self->stream_scopes, NULL, &scopes) < 0) {
        return NULL;
    }
    int entered = PyTuple_GET_SIZE(scopes) > 0;
    Py_DECREF(scopes);
    if (!entered) {
        PyObject *stream = get_slot(self->device, &stream_in_place_slot, str_stream_in_place);
        if (stream != Py_None) {
            return stream;
        }
        Py_DECREF(stream);
    }
    return PyObject_CallOneArg(self->find_stream, self->device);
}

/* Whether the driver may be called for the pool: its device is current, so the null stream is this device's too. */
static int
driver_serves(Ledger *self)
{
    int device;
    return self->malloc_from_pool != 0
           && (self->ordinal < 0
               || (((CurrentDevice)self->current_device)(&device) == 0 && device == self->ordinal));
}

/* The address of a block that the driver gave, or 0: then the call is made in the usual way, which knows what is wrong. */
static unsigned long long
malloc_by_driver(Ledger *self, unsigned long long nbytes, void *stream)
{
    void *pool = PyLong_AsVoidPtr(self->pool);
    unsigned long long ptr = 0;
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = ((MallocFromPool)self->malloc_from_pool)(&ptr, nbytes, pool, stream);
    Py_END_ALLOW_THREADS
    return result == 0 ? ptr : 0;
}

/* The interpreter lock is kept: a free waits for nothing, and who gives the lock up for so short a call may get it back
 * milliseconds later, if another thread computes.
 */
static int
free_by_driver(Ledger *self, unsigned long long ptr, void *stream)
{
    return ((FreeAsync)self->free_async)(ptr, stream) == 0;
}

/* Call the allocator, or the pool itself, with a stream. New reference. */
static PyObject *
allocate_on(Ledger *self, PyObject *size, unsigned long long nbytes, PyObject *stream)
{
    if (self->pool == Py_None) {
        PyObject *arguments[] = {size, stream};
        return PyObject_Vectorcall(self->allocate, arguments, 2, NULL);
    }
    PyObject *handle = get_slot(stream, &handle_slot, str_handle);
    if (handle == NULL) {
        return NULL;
    }
    unsigned long long address = driver_serves(self) ? malloc_by_driver(self, nbytes, PyLong_AsVoidPtr(handle)) : 0;
    if (address != 0) {
        Py_DECREF(handle);
        return PyLong_FromUnsignedLongLong(address);
    }
    PyObject *arguments[] = {size, self->pool, handle};
    PyObject *ptr = PyObject_Vectorcall(self->allocate, arguments, 3, NULL);
    Py_DECREF(handle);
    return ptr;
}

static PyObject *
deallocate_on(Ledger *self, PyObject *ptr, PyObject *size, PyObject *stream)
{
    if (self->pool == Py_None) {
        PyObject *arguments[] = {ptr, size, stream};
        return PyObject_Vectorcall(self->deallocate, arguments, 3, NULL);
    }
    PyObject *handle = get_slot(stream, &handle_slot, str_handle);
    if (handle == NULL) {
        return NULL;
    }
    if (driver_serves(self) && free_by_driver(self, PyLong_AsUnsignedLongLong(ptr), PyLong_AsVoidPtr(handle))) {
        Py_DECREF(handle);
        Py_RETURN_NONE;
    }
    PyObject *arguments[] = {ptr, handle};
    PyObject *result = PyObject_Vectorcall(self->deallocate, arguments, 2, NULL);
    Py_DECREF(handle);
    return result;
}

/* Allocate on a stream and book it. */
static PyObject *
allocate_booked(Ledger *self, PyObject *size, unsigned long long nbytes, PyObject *stream)
{
    PyObject *entry = PyTuple_Pack(2, size, stream);
    if (entry == NULL) {
        return NULL;
    }
    PyObject *ptr = allocate_on(self, size, nbytes, stream);
    PyObject *booked = ptr == NULL ? refuse(self, size) : book(self, ptr, entry, nbytes);
    Py_DECREF(entry);
    return booked;
}

static PyObject *
stream_ledger_allocate(Ledger *self, PyObject *size)
{
    unsigned long long nbytes;
    if (!usual_size(self, size, &nbytes)) {
        return PyObject_CallMethodOneArg((PyObject *)self, str_allocate_unusual, size);
    }
    PyObject *stream = stream_in_force(self);
    PyObject *booked = stream == NULL ? NULL : allocate_booked(self, size, nbytes, stream);
    Py_XDECREF(stream);
    return booked;
}

PyDoc_STRVAR(allocate_on_doc,
             "allocate_on($self, size_in_bytes, stream, /)\n--\n\n"
             "Return the address of a new block, usable by work queued on a stream from now on.");

static PyObject *
stream_ledger_allocate_on(Ledger *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count != 2) {
        return PyErr_Format(PyExc_TypeError, "allocate_on() takes size_in_bytes and stream, and was given %zd arguments",
                            count);
    }
    unsigned long long nbytes;
    if (!usual_size(self, arguments[0], &nbytes)) {
        PyObject *stack[] = {(PyObject *)self, arguments[0], arguments[1]};
        return PyObject_VectorcallMethod(str_allocate_unusual_on, stack, 3, NULL);
    }
    return allocate_booked(self, arguments[0], nbytes, arguments[1]);
}

/* Whether a block may be freed with the size given; raise if not. 0 with no exception set: there is nothing to do. */
static int
may_free(Ledger *self, PyObject *ptr, PyObject *size, PyObject *given)
{
    int same = size == NULL ? 0 : PyObject_RichCompareBool(size, given, Py_EQ);
    if (same != 0) {
        return same > 0;
    }
    PyObject *stack[] = {(PyObject *)self, ptr, size == NULL ? Py_None : size, given};
    Py_XDECREF(PyObject_VectorcallMethod(str_refuse_free, stack, 4, NULL));
    return 0;
}

/* Put a block back on the books that the allocator failed to take, and raise what its exception means. */
static void
keep(Ledger *self, PyObject *ptr, PyObject *entry)
{
    PyObject *error = take_exception();
    if (PyDict_SetItem(self->live, ptr, entry) == 0) {
        raise_by(self, str_free_failed, &error, 1);
    }
    Py_DECREF(error);
}

/* Free a block: `size` of its entry, `stream` or NULL. Both belong to the entry. */
static PyObject *
deallocate(Ledger *self, PyObject *ptr, PyObject *given, PyObject *entry, PyObject *size, PyObject *stream)
{
    if (!may_free(self, ptr, size, given)) {
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    }
    /* Off the books before the allocator has it: from then on it may hand the address out again. */
    if (PyDict_DelItem(self->live, ptr) < 0) {
        return NULL;
    }
    PyObject *arguments[] = {ptr, size};
    PyObject *result = stream == NULL ? PyObject_Vectorcall(self->deallocate, arguments, 2, NULL)
                                      : deallocate_on(self, ptr, size, stream);
    if (result == NULL) {
        keep(self, ptr, entry);
        return NULL;
    }
    Py_DECREF(result);
    self->current -= PyLong_AsUnsignedLongLong(size);
    self->frees++;
    Py_RETURN_NONE;
}

static int
two_arguments(Py_ssize_t count)
{
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "deallocate() takes ptr and size_in_bytes, and was given %zd arguments", count);
    }
    return count == 2;
}

PyDoc_STRVAR(deallocate_doc, "deallocate($self, ptr, size_in_bytes, /)\n--\n\nTake back a block.");

static PyObject *
ledger_deallocate(Ledger *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (!two_arguments(count)) {
        return NULL;
    }
    PyObject *size = PyDict_GetItemWithError(self->live, arguments[0]);
    if (size == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_XINCREF(size);
    PyObject *result = deallocate(self, arguments[0], arguments[1], size, size, NULL);
    Py_XDECREF(size);
    return result;
}

static PyObject *
stream_ledger_deallocate(Ledger *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (!two_arguments(count)) {
        return NULL;
    }
    PyObject *entry = PyDict_GetItemWithError(self->live, arguments[0]);
    if (entry == NULL && PyErr_Occurred()) {
        return NULL;
    }
    Py_XINCREF(entry);
    PyObject *size = entry == NULL ? NULL : PyTuple_GET_ITEM(entry, 0);
    PyObject *stream = entry == NULL ? NULL : PyTuple_GET_ITEM(entry, 1);
    PyObject *result = deallocate(self, arguments[0], arguments[1], entry, size, stream);
    Py_XDECREF(entry);
    return result;
}

static int
ledger_traverse(Ledger *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->live);
    Py_VISIT(self->allocate);
    Py_VISIT(self->deallocate);
    Py_VISIT(self->device);
    Py_VISIT(self->stream_scopes);
    Py_VISIT(self->find_stream);
    Py_VISIT(self->pool);
    return 0;
}

static int
ledger_clear(Ledger *self)
{
    Py_CLEAR(self->live);
    Py_CLEAR(self->allocate);
    Py_CLEAR(self->deallocate);
    Py_CLEAR(self->device);
    Py_CLEAR(self->stream_scopes);
    Py_CLEAR(self->find_stream);
    Py_CLEAR(self->pool);
    return 0;
}

static void
ledger_dealloc(Ledger *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    ledger_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *
ledger_new(PyTypeObject *type, PyObject *Py_UNUSED(arguments), PyObject *Py_UNUSED(keywords))
{
    Ledger *self = (Ledger *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->live = PyDict_New();
    self->allocate = Py_NewRef(Py_None);
    self->deallocate = Py_NewRef(Py_None);
    self->device = Py_NewRef(Py_None);
    self->stream_scopes = Py_NewRef(Py_None);
    self->find_stream = Py_NewRef(Py_None);
    self->pool = Py_NewRef(Py_None);
    self->largest = LLONG_MAX;
    if (self->live == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static PyMemberDef ledger_members[] = {
    {"_live", T_OBJECT_EX, offsetof(Ledger, live), READONLY, NULL},
    {"_allocate", T_OBJECT_EX, offsetof(Ledger, allocate), 0, NULL},
    {"_deallocate", T_OBJECT_EX, offsetof(Ledger, deallocate), 0, NULL},
    {"device", T_OBJECT_EX, offsetof(Ledger, device), 0, NULL},
    {"_stream_scopes", T_OBJECT_EX, offsetof(Ledger, stream_scopes), 0, NULL},
    {"_find_stream", T_OBJECT_EX, offsetof(Ledger, find_stream), 0, NULL},
    {"_pool", T_OBJECT_EX, offsetof(Ledger, pool), 0, NULL},
    {"_malloc_from_pool", T_ULONGLONG, offsetof(Ledger, malloc_from_pool), 0, NULL},
    {"_free_async", T_ULONGLONG, offsetof(Ledger, free_async), 0, NULL},
    {"_current_device", T_ULONGLONG, offsetof(Ledger, current_device), 0, NULL},
    {"_ordinal", T_INT, offsetof(Ledger, ordinal), 0, NULL},
    {"_largest", T_ULONGLONG, offsetof(Ledger, largest), 0, NULL},
    {"_current", T_ULONGLONG, offsetof(Ledger, current), 0, NULL},
    {"_peak", T_ULONGLONG, offsetof(Ledger, peak), 0, NULL},
    {"_allocations", T_ULONGLONG, offsetof(Ledger, allocations), 0, NULL},
    {"_frees", T_ULONGLONG, offsetof(Ledger, frees), 0, NULL},
    {NULL},
};

static PyMethodDef ledger_methods[] = {
    {"allocate", (PyCFunction)ledger_allocate, METH_O, allocate_doc},
    {"deallocate", (PyCFunction)(void (*)(void))ledger_deallocate, METH_FASTCALL, deallocate_doc},
    {NULL},
};

static PyMethodDef stream_ledger_methods[] = {
    {"allocate", (PyCFunction)stream_ledger_allocate, METH_O, allocate_doc},
    {"allocate_on", (PyCFunction)(void (*)(void))stream_ledger_allocate_on, METH_FASTCALL, allocate_on_doc},
    {"deallocate", (PyCFunction)(void (*)(void))stream_ledger_deallocate, METH_FASTCALL, deallocate_doc},
    {NULL},
};

static PyType_Slot ledger_slots[] = {
    {Py_tp_doc, "The live blocks of an allocator, and the calls to it."},
    {Py_tp_new, ledger_new},
    {Py_tp_dealloc, ledger_dealloc},
    {Py_tp_traverse, ledger_traverse},
    {Py_tp_clear, ledger_clear},
    {Py_tp_members, ledger_members},
    {Py_tp_methods, ledger_methods},
    {0, NULL},
};

static PyType_Slot stream_ledger_slots[] = {
    {Py_tp_doc, "A ledger of an allocator that takes the stream with each call."},
    {Py_tp_dealloc, ledger_dealloc},
    {Py_tp_traverse, ledger_traverse},
    {Py_tp_clear, ledger_clear},
    {Py_tp_methods, stream_ledger_methods},
    {0, NULL},
};

#define LEDGER_FLAGS (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC)

static PyType_Spec ledger_spec = {
    "allotment.layers._ledger_native.Ledger", sizeof(Ledger), 0, LEDGER_FLAGS, ledger_slots};
static PyType_Spec stream_ledger_spec = {
    "allotment.layers._ledger_native.StreamLedger", sizeof(Ledger), 0, LEDGER_FLAGS, stream_ledger_slots};

static int
module_exec(PyObject *module)
{
    if (intern(&str_allocate_unusual, "_allocate_unusual") < 0
        || intern(&str_allocate_unusual_on, "_allocate_unusual_on") < 0 || intern(&str_refuse, "_refuse") < 0
        || intern(&str_reject, "_reject") < 0 || intern(&str_refuse_free, "_refuse_free") < 0
        || intern(&str_free_failed, "_free_failed") < 0 || intern(&str_stream_in_place, "stream_in_place") < 0
        || intern(&str_handle, "handle") < 0) {
        return -1;
    }
    PyObject *ledger = PyType_FromSpec(&ledger_spec);
    if (ledger == NULL || PyModule_AddObjectRef(module, "Ledger", ledger) < 0) {
        Py_XDECREF(ledger);
        return -1;
    }
    PyObject *stream_ledger = PyType_FromSpecWithBases(&stream_ledger_spec, ledger);
    Py_DECREF(ledger);
    if (stream_ledger == NULL || PyModule_AddObjectRef(module, "StreamLedger", stream_ledger) < 0) {
        Py_XDECREF(stream_ledger);
        return -1;
    }
    Py_DECREF(stream_ledger);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "allotment.layers._ledger_native",
    .m_doc = "The hot path of the accounts, compiled.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__ledger_native(void)
{
    return PyModuleDef_Init(&module_def);
}
