// The engine for callers in C, who hold no interpreter lock: PyTorch's pluggable allocator, CuPy's CFunctionAllocator.
#pragma once

#include <atomic>

#include "engine.hpp"

namespace allotment {

constexpr int MOST_DEVICES = 64;

using FindStream = std::intptr_t (*)();

// What CuPy's CFunctionAllocator is given: an engine, and what returns the stream that memory is for.
struct Client {
    Engine *engine;
    FindStream find_stream;
};

// The engine that serves a device's callers; `nullptr` for none. An engine that served once must not go: its blocks may
// be held by libraries that free them at the very end of the process.
inline std::atomic<Engine *> &served(int device) {
    static std::atomic<Engine *> engines[MOST_DEVICES];
    return engines[device];
}

// Let an engine serve a device; whether it does. One that does already, and has blocks out, is not relieved: they return
// to whoever serves.
inline bool take_service(int device, Engine *engine) {
    Engine *before = served(device).load();
    if (before != nullptr && before != engine && before->account().blocks != 0) return false;
    return served(device).compare_exchange_strong(before, engine);
}

void *c_allocate(Engine *engine, std::size_t size, Handle stream) noexcept;
void c_free(Engine *engine, void *ptr) noexcept;

// void *(ssize_t size, int device, cudaStream_t stream), and void (void *, ssize_t, int, cudaStream_t)
void *torch_allocate(std::ptrdiff_t size, int device, void *stream) noexcept;
void torch_free(void *ptr, std::ptrdiff_t size, int device, void *stream) noexcept;

// intptr_t (void *param, size_t size, int device), and void (void *param, intptr_t ptr, int device)
std::intptr_t cupy_allocate(void *client, std::size_t size, int device) noexcept;
void cupy_free(void *client, std::intptr_t ptr, int device) noexcept;

}  // namespace allotment
