#include <Python.h>

#include "c_calls.hpp"

namespace allotment {

namespace {

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
    return Py_IsFinalizing() != 0;
#else
    return _Py_IsFinalizing() != 0;
#endif
}

// Lets other threads have the interpreter lock, for a caller that holds it against all expectation, as CuPy does: one of
// them may hold the engine's turn, and wait for that lock.
class OthersMayRun {
  public:
    OthersMayRun() : state_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~OthersMayRun() {
        if (state_ != nullptr) PyEval_RestoreThread(state_);
    }
    OthersMayRun(const OthersMayRun &) = delete;
    OthersMayRun &operator=(const OthersMayRun &) = delete;

  private:
    PyThreadState *state_;
};

// Do what calls the supply, and forget what it raises: nobody can be told.
template <typename Call> void call_quietly(Engine *engine, Call call) noexcept {
    // It is done through the interpreter, which is not there any more when it is being torn down.
    if (is_finalizing()) return;
    OthersMayRun others;
    try {
        call();
    } catch (const SupplyError &failure) {
        engine->discard(failure.error);
    } catch (...) {
    }
}

}  // namespace

void *c_allocate(Engine *engine, std::size_t size, Handle stream) noexcept {
    if (engine == nullptr || size == 0) return nullptr;
    Address ptr = engine->take_cached(size, stream, 0, true);
    if (ptr == 0) {
        call_quietly(engine, [&] {
            engine->watch(stream);
            ptr = engine->take(size, stream, 0, true);
        });
    }
    return reinterpret_cast<void *>(ptr);
}

void c_free(Engine *engine, void *ptr) noexcept {
    if (engine == nullptr || ptr == nullptr) return;
    auto address = reinterpret_cast<Address>(ptr);
    std::uint64_t size = engine->size_of(address);
    Freed freed = engine->free(address, size);
    if (freed == Freed::USED) call_quietly(engine, [&] { engine->free_used(address, true); });
    if (freed == Freed::DUE) call_quietly(engine, [&] { engine->look_around(); });
}

void *torch_allocate(std::ptrdiff_t size, int device, void *stream) noexcept {
    return c_allocate(served(device), static_cast<std::size_t>(size), reinterpret_cast<Handle>(stream));
}

void torch_free(void *ptr, std::ptrdiff_t, int device, void *) noexcept { c_free(served(device), ptr); }

std::intptr_t cupy_allocate(void *client, std::size_t size, int) noexcept {
    auto *known = static_cast<Client *>(client);
    return reinterpret_cast<std::intptr_t>(c_allocate(known->engine, size, static_cast<Handle>(known->find_stream())));
}

void cupy_free(void *client, std::intptr_t ptr, int) noexcept {
    c_free(static_cast<Client *>(client)->engine, reinterpret_cast<void *>(ptr));
}

}  // namespace allotment
