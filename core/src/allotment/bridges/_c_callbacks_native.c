/* Functions in C through which a library allocates, compiled. The twin in Python, _c_callbacks.py, says what they are; both
 * pass the same tests. These look, before they take the interpreter lock, whether there still is an interpreter, and can
 * take a block back without that lock, and tell of a refusal by an exception of C++.
 */
#include "../_native.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DEVICES 64

typedef void *(*Allocate)(Py_ssize_t, int, void *);
typedef void (*Free)(void *, Py_ssize_t, int, void *);

typedef struct Freed {
    struct Freed *before;
    void *ptr;
} Freed;

/* A std::string, as libstdc++ lays it out. */
typedef struct {
    char *text;
    size_t length;
    char local[16];
} CxxString;

/* What an exception of C++ is made with; see `throw_by`. */
typedef struct {
    void *(*new_bytes)(size_t);
    void (*delete_bytes)(void *);
    void *(*allocate)(size_t);
    void (*raise)(void *, void *, void (*)(void *));
    void (*construct)(void *, CxxString *, void **, const void *);
    void **methods;
    void *type;
} Thrower;

static PyObject *receiver;
static volatile int is_closed;
static struct {
    Allocate allocate;
    Free free;
} served[MOST_DEVICES];
static Thrower thrower;
static PyThread_type_lock turn; /* for the two below, which are used without the interpreter lock */
static Freed *last_freed;
static int is_asked;

static int
has_interpreter(void)
{
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsInitialized() && !Py_IsFinalizing();
#else
    return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

typedef struct {
    PyGILState_STATE lock;
    PyObject *error; /* that is on its way through the caller */
} Entry;

static int
enter(Entry *entry)
{
    if (is_closed || receiver == NULL || !has_interpreter()) {
        return 0;
    }
    entry->lock = PyGILState_Ensure();
    entry->error = take_exception();
    return 1;
}

static void
leave(Entry *entry, PyObject *result)
{
    if (result == NULL) {
        PyErr_WriteUnraisable(receiver);
    }
    Py_XDECREF(result);
    if (entry->error != NULL) {
        restore_exception(entry->error);
    }
    PyGILState_Release(entry->lock);
}

/* Return the text of the exception that is set, and let the world know of it unless memory was short. */
static char *
take_reason(void)
{
    int is_shortage = PyErr_ExceptionMatches(PyExc_MemoryError);
    PyObject *error = take_exception(), *text = PyObject_Str(error);
    const char *utf8 = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    char *reason = utf8 == NULL ? NULL : strdup(utf8);
    Py_XDECREF(text);
    PyErr_Clear();
    if (is_shortage) {
        Py_DECREF(error);
    } else {
        restore_exception(error);
        PyErr_WriteUnraisable(receiver);
    }
    return reason;
}

static void
throw_refusal(char *reason)
{
    const char *told = reason == NULL ? "the interpreter is shutting down" : reason;
    size_t length = strlen(told);
    CxxString text = {text.local, length, ""};
    void *backtrace[2] = {NULL, NULL}; /* an empty std::shared_ptr */
    if (length >= sizeof(text.local)) {
        text.text = thrower.new_bytes(length + 1);
        *(size_t *)text.local = length;
    }
    memcpy(text.text, told, length + 1);
    free(reason);
    void *error = thrower.allocate(1024);
    memset(error, 0, 1024);
    thrower.construct(error, &text, backtrace, NULL);
    if (text.text != text.local) {
        thrower.delete_bytes(text.text);
    }
    *(void ***)error = thrower.methods + 2;
    thrower.raise(error, thrower.type, (void (*)(void *))thrower.methods[2]);
}

static void *
do_allocate(Py_ssize_t size, int device, void *stream)
{
    void *ptr = NULL;
    char *reason = NULL;
    Entry entry;
    if (size == 0) {
        return NULL;
    }
    if (device >= 0 && device < MOST_DEVICES && served[device].allocate != NULL) {
        ptr = served[device].allocate(size, device, stream);
    }
    if (ptr == NULL && enter(&entry)) {
        PyObject *found = PyObject_CallMethod(receiver, "allocate", "niK", size, device,
                                              (unsigned long long)(uintptr_t)stream);
        ptr = found == NULL ? NULL : PyLong_AsVoidPtr(found);
        Py_XDECREF(found);
        if (PyErr_Occurred()) {
            ptr = NULL;
            reason = take_reason();
        }
        leave(&entry, Py_NewRef(Py_None));
    }
    if (ptr == NULL && thrower.raise != NULL) {
        throw_refusal(reason);
    }
    free(reason);
    return ptr;
}

static void
do_free(void *ptr, Py_ssize_t size, int device, void *stream)
{
    Entry entry;
    if (ptr == NULL) {
        return;
    }
    if (device >= 0 && device < MOST_DEVICES && served[device].free != NULL) {
        served[device].free(ptr, size, device, stream);
    } else if (enter(&entry)) {
        leave(&entry, PyObject_CallMethod(receiver, "free", "K", (unsigned long long)(uintptr_t)ptr));
    }
}

static int
ask_to_settle(void *Py_UNUSED(nothing))
{
    is_asked = 0;
    if (!is_closed && receiver != NULL) {
        PyObject *result = PyObject_CallMethod(receiver, "settle", NULL);
        if (result == NULL) {
            PyErr_WriteUnraisable(receiver);
        }
        Py_XDECREF(result);
    }
    return 0;
}

/* Called with locks of the library held: neither waits for the interpreter lock nor calls anything. */
static void
do_free_later(void *ptr, Py_ssize_t Py_UNUSED(size), int Py_UNUSED(device), void *Py_UNUSED(stream))
{
    Freed *freed = ptr == NULL || is_closed ? NULL : malloc(sizeof(Freed));
    int asks = 0;
    if (freed == NULL) {
        return;
    }
    freed->ptr = ptr;
    PyThread_acquire_lock(turn, WAIT_LOCK);
    freed->before = last_freed;
    last_freed = freed;
    if (!is_asked && has_interpreter()) {
        asks = is_asked = 1;
    }
    PyThread_release_lock(turn);
    if (asks && Py_AddPendingCall(ask_to_settle, NULL) < 0) {
        is_asked = 0; /* there are too many: the next block that comes asks again */
    }
}

static void
do_record_use(void *ptr, void *stream)
{
    Entry entry;
    if (ptr != NULL && enter(&entry)) {
        leave(&entry, PyObject_CallMethod(receiver, "record_use", "KK", (unsigned long long)(uintptr_t)ptr,
                                          (unsigned long long)(uintptr_t)stream));
    }
}

static void
do_trim(void)
{
    Entry entry;
    if (enter(&entry)) {
        leave(&entry, PyObject_CallMethod(receiver, "trim", NULL));
    }
}

/* What Python calls */

static PyObject *
connect(PyObject *Py_UNUSED(module), PyObject *object)
{
    is_closed = 0;
    Py_XSETREF(receiver, object == Py_None ? NULL : Py_NewRef(object));
    Py_RETURN_NONE;
}

static PyObject *
close_all(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    is_closed = 1;
    Py_RETURN_NONE;
}

static PyObject *
addresses(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    return Py_BuildValue("{sN sN sN sN sN}", "allocate", PyLong_FromVoidPtr((void *)do_allocate), "free",
                         PyLong_FromVoidPtr((void *)do_free), "free_later", PyLong_FromVoidPtr((void *)do_free_later),
                         "record_use", PyLong_FromVoidPtr((void *)do_record_use), "trim",
                         PyLong_FromVoidPtr((void *)do_trim));
}

static PyObject *
serve(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    int device;
    unsigned long long allocate, give_back;
    if (!PyArg_ParseTuple(arguments, "iKK:serve", &device, &allocate, &give_back)) {
        return NULL;
    }
    if (device < 0 || device >= MOST_DEVICES) {
        return PyErr_Format(PyExc_ValueError, "no device %d: there are at most %d", device, MOST_DEVICES);
    }
    served[device].allocate = (Allocate)(uintptr_t)allocate;
    served[device].free = (Free)(uintptr_t)give_back;
    Py_RETURN_NONE;
}

static PyObject *
throw_by(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    unsigned long long at[7];
    if (!PyArg_ParseTuple(arguments, "KKKKKKK:throw_by", at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6)) {
        return NULL;
    }
    Thrower given = {
        (void *(*)(size_t))(uintptr_t)at[0],
        (void (*)(void *))(uintptr_t)at[1],
        (void *(*)(size_t))(uintptr_t)at[2],
        (void (*)(void *, void *, void (*)(void *)))(uintptr_t)at[3],
        (void (*)(void *, CxxString *, void **, const void *))(uintptr_t)at[4],
        (void **)(uintptr_t)at[5],
        (void *)(uintptr_t)at[6],
    };
    thrower = given;
    Py_RETURN_NONE;
}

static PyObject *
take_freed(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(nothing))
{
    PyObject *list = PyList_New(0);
    if (list == NULL) {
        return NULL;
    }
    PyThread_acquire_lock(turn, WAIT_LOCK);
    Freed *last = last_freed;
    last_freed = NULL;
    PyThread_release_lock(turn);
    while (last != NULL) {
        Freed *freed = last;
        PyObject *ptr = PyLong_FromVoidPtr(freed->ptr);
        last = freed->before;
        free(freed);
        if (ptr == NULL || PyList_Append(list, ptr) < 0) {
            PyErr_Clear(); /* no memory for a number: the block is lost, and the others are not */
        }
        Py_XDECREF(ptr);
    }
    PyList_Reverse(list);
    return list;
}

static PyMethodDef methods[] = {
    {"connect", connect, METH_O, "Let an object receive the calls; None for nobody."},
    {"close", close_all, METH_NOARGS, "Call nobody any more."},
    {"addresses", addresses, METH_NOARGS, "Return the address of each function by its name."},
    {"serve", serve, METH_VARARGS, "Let two functions in C serve a device first: (device, allocate, free); 0 for none."},
    {"throw_by", throw_by, METH_VARARGS,
     "Tell of a refusal by an exception of C++, made with what is at these addresses: operator new, operator delete, "
     "__cxa_allocate_exception, __cxa_throw, a constructor (std::string, std::shared_ptr<>, void *), the class's "
     "virtual table, its type information. Zeros: by a null pointer."},
    {"take_freed", take_freed, METH_NOARGS, "Return the addresses given to free_later, and forget them."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "_c_callbacks_native", "The compiled twin of _c_callbacks.py.", -1, methods, NULL, NULL, NULL,
    NULL,
};

PyMODINIT_FUNC
PyInit__c_callbacks_native(void)
{
    if (turn == NULL && (turn = PyThread_allocate_lock()) == NULL) {
        return PyErr_NoMemory();
    }
    return PyModule_Create(&definition);
}
