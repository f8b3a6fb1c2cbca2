/* Calls beside the graph captures of others, compiled: they go to the driver. The twin in Python, _beside_captures.py, says
 * what they do and makes them where the driver cannot; both pass the same tests.
 */
#include "_native.h"

/* cuThreadExchangeStreamCaptureMode, cuStreamIsCapturing, cuCtxGetDevice and cuEventRecord. */
typedef int (*ExchangeMode)(int *);
typedef int (*IsCapturing)(void *, int *);
typedef int (*CurrentDevice)(int *);
typedef int (*RecordEvent)(void *, void *);

enum { RELAXED = 2 }; /* CU_STREAM_CAPTURE_MODE_RELAXED */
/* Handles up to the last one, as cudaStreamLegacy, are a stream of whichever device is current. */
enum { NULL_STREAM = 0, LAST_OF_DEVICE = 2 };

typedef struct {
    PyObject_HEAD
    PyObject *in_python; /* the twin */
    unsigned long long exchange, is_capturing, current_device, record_event;
} BesideCaptures;

static PyObject *str_call, *str_is_captured, *str_order;

PyDoc_STRVAR(call_doc, "call($self, function, /, *arguments)\n--\n\nMake a call which ends no capture of this thread's.");

static PyObject *
beside_call(BesideCaptures *self, PyObject *const *arguments, Py_ssize_t count)
{
    if (count < 1) {
        return PyErr_Format(PyExc_TypeError, "call() takes the function to call");
    }
    ExchangeMode exchange = (ExchangeMode)self->exchange;
    int mode = RELAXED;
    if (exchange(&mode) != 0) {
        PyObject *call = PyObject_GetAttr(self->in_python, str_call);
        PyObject *result = call == NULL ? NULL : PyObject_Vectorcall(call, arguments, count, NULL);
        Py_XDECREF(call);
        return result;
    }
    PyObject *result = PyObject_Vectorcall(arguments[0], arguments + 1, count - 1, NULL);
    PyObject *error = result == NULL ? take_exception() : NULL;
    exchange(&mode);
    if (error != NULL) {
        restore_exception(error);
    }
    return result;
}

/* Whether the driver takes a handle for the stream that it is: the null stream is the current device's. */
static int
driver_knows(BesideCaptures *self, unsigned long long handle, long ordinal)
{
    int device;
    return handle > LAST_OF_DEVICE || (((CurrentDevice)self->current_device)(&device) == 0 && device == ordinal);
}

/* Two plain ints; whether they were given. */
static int
two_numbers(const char *name, PyObject *const *arguments, Py_ssize_t count, unsigned long long *handle, long *ordinal)
{
    if (count != 2) {
        PyErr_Format(PyExc_TypeError, "%s() takes two numbers, and was given %zd arguments", name, count);
        return 0;
    }
    *handle = PyLong_AsUnsignedLongLong(arguments[0]);
    *ordinal = PyErr_Occurred() ? -1 : PyLong_AsLong(arguments[1]);
    return !PyErr_Occurred();
}

/* Ask the twin. */
static PyObject *
in_python(BesideCaptures *self, PyObject *method, PyObject *const *arguments)
{
    PyObject *stack[] = {self->in_python, arguments[0], arguments[1]};
    return PyObject_VectorcallMethod(method, stack, 3, NULL);
}

static int
is_captured(BesideCaptures *self, void *stream)
{
    int status = 0;
    return ((IsCapturing)self->is_capturing)(stream, &status) != 0 || status != 0;
}

PyDoc_STRVAR(is_captured_doc,
             "is_captured($self, handle, ordinal, /)\n--\n\n"
             "Return whether a free on a stream of a device would become part of a capture, or end one.");

static PyObject *
beside_is_captured(BesideCaptures *self, PyObject *const *arguments, Py_ssize_t count)
{
    unsigned long long handle;
    long ordinal;
    if (!two_numbers("is_captured", arguments, count, &handle, &ordinal)) {
        return NULL;
    }
    return driver_knows(self, handle, ordinal) ? PyBool_FromLong(is_captured(self, (void *)handle))
                                               : in_python(self, str_is_captured, arguments);
}

PyDoc_STRVAR(order_doc,
             "order_after_all_work($self, event, ordinal, /)\n--\n\n"
             "Order later work of a device after all that is queued, if that ends no capture; return whether.");

static PyObject *
beside_order_after_all_work(BesideCaptures *self, PyObject *const *arguments, Py_ssize_t count)
{
    unsigned long long event;
    long ordinal;
    if (!two_numbers("order_after_all_work", arguments, count, &event, &ordinal)) {
        return NULL;
    }
    if (driver_knows(self, NULL_STREAM, ordinal)) {
        if (is_captured(self, (void *)NULL_STREAM)) {
            Py_RETURN_FALSE;
        }
        int mode = RELAXED;
        if (((ExchangeMode)self->exchange)(&mode) == 0) {
            int result = ((RecordEvent)self->record_event)((void *)event, (void *)NULL_STREAM);
            ((ExchangeMode)self->exchange)(&mode);
            if (result == 0) {
                Py_RETURN_TRUE;
            }
        }
    }
    return in_python(self, str_order, arguments); /* which can say what is wrong */
}

static PyObject *
beside_new(PyTypeObject *type, PyObject *arguments, PyObject *Py_UNUSED(keywords))
{
    PyObject *in_python;
    unsigned long long exchange, is_capturing, current_device, record_event;
    if (!PyArg_ParseTuple(arguments, "OKKKK", &in_python, &exchange, &is_capturing, &current_device, &record_event)) {
        return NULL;
    }
    if (exchange == 0 || is_capturing == 0 || current_device == 0 || record_event == 0) {
        return PyErr_Format(PyExc_ValueError, "BesideCaptures() takes addresses of functions, and was given 0");
    }
    BesideCaptures *self = (BesideCaptures *)type->tp_alloc(type, 0);
    if (self == NULL) {
        return NULL;
    }
    self->in_python = Py_NewRef(in_python);
    self->exchange = exchange, self->is_capturing = is_capturing;
    self->current_device = current_device, self->record_event = record_event;
    return (PyObject *)self;
}

static int
beside_traverse(BesideCaptures *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->in_python);
    return 0;
}

static int
beside_clear(BesideCaptures *self)
{
    Py_CLEAR(self->in_python);
    return 0;
}

static void
beside_dealloc(BesideCaptures *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    beside_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef beside_methods[] = {
    {"call", (PyCFunction)(void (*)(void))beside_call, METH_FASTCALL, call_doc},
    {"is_captured", (PyCFunction)(void (*)(void))beside_is_captured, METH_FASTCALL, is_captured_doc},
    {"order_after_all_work", (PyCFunction)(void (*)(void))beside_order_after_all_work, METH_FASTCALL, order_doc},
    {NULL},
};

static PyType_Slot beside_slots[] = {
    {Py_tp_doc, "What is asked of captures, and done beside them, by the driver's functions."},
    {Py_tp_new, beside_new},
    {Py_tp_dealloc, beside_dealloc},
    {Py_tp_traverse, beside_traverse},
    {Py_tp_clear, beside_clear},
    {Py_tp_methods, beside_methods},
    {0, NULL},
};

static PyType_Spec beside_spec = {"allotment._beside_captures_native.BesideCaptures", sizeof(BesideCaptures), 0,
                                  Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, beside_slots};

static int
module_exec(PyObject *module)
{
    if (intern(&str_call, "call") < 0 || intern(&str_is_captured, "is_captured") < 0
        || intern(&str_order, "order_after_all_work") < 0) {
        return -1;
    }
    PyObject *type = PyType_FromSpec(&beside_spec);
    int failed = type == NULL || PyModule_AddObjectRef(module, "BesideCaptures", type) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot module_slots[] = {{Py_mod_exec, module_exec}, {0, NULL}};

static struct PyModuleDef module_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "allotment._beside_captures_native",
    .m_doc = "Calls beside the graph captures of others, compiled.",
    .m_slots = module_slots,
};

PyMODINIT_FUNC
PyInit__beside_captures_native(void)
{
    return PyModuleDef_Init(&module_def);
}
