// What the engine throws, as exceptions of Python.
#pragma once

#include <Python.h>

#include <new>
#include <stdexcept>

#include "policy.hpp"

namespace allotment {

inline void raise_limit(const LimitError &limit) {
    PyObject *module = PyImport_ImportModule("allotment_caching.engine.policy");
    PyObject *type = module == nullptr ? nullptr : PyObject_GetAttrString(module, "LimitError");
    PyObject *error = type == nullptr ? nullptr
                                      : PyObject_CallMethod(type, "of", "KKK", (unsigned long long)limit.missing,
                                                            (unsigned long long)limit.reserved,
                                                            (unsigned long long)limit.limit);
    if (error != nullptr) PyErr_SetObject(type, error);
    Py_XDECREF(error);
    Py_XDECREF(type);
    Py_XDECREF(module);
}

inline void translate() {
    try {
        throw;
    } catch (const SupplyError &failure) {
        auto *error = static_cast<PyObject *>(failure.error);
        PyErr_SetObject(reinterpret_cast<PyObject *>(Py_TYPE(error)), error);
        Py_DECREF(error);
    } catch (const LimitError &limit) {
        raise_limit(limit);
    } catch (const NestedError &) {
        PyErr_SetString(
            PyExc_RuntimeError,
            "memory was asked for by a finaliser that runs while the same thread makes memory: it is not at hand");
    } catch (const std::bad_alloc &) {
        PyErr_NoMemory();
    } catch (const std::exception &error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
}

}  // namespace allotment
