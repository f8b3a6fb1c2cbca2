// Where the engine gets memory from. All of these calls are rare: none happens while cached memory serves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace allotment {

using Address = std::uint64_t;
using Handle = std::uint64_t;  // of memory, of a stream
using Mark = std::int64_t;     // of a stream's end at a time

constexpr Mark PAST = 0;      // all work is past
constexpr Mark UNKNOWN = -1;  // it could not be set: nobody may ask now

// A call failed. `error` is the exception of Python, owned by whoever catches this.
struct SupplyError {
    void *error;
};

// The calls, in C, so that Cython can fill the table. `self` is the supply in Python; each call takes the interpreter
// lock for itself, unless it is the driver's, and is made without any lock of the engine but the turn. A call that fails
// sets `error`.
struct SupplyCalls {
    void *self = nullptr;
    void *memory = nullptr;  // what makes and maps memory: the supply in Python too, or a `DriverMemory`
    std::uint64_t granule = 0;
    Address (*reserve)(void *, void **, std::uint64_t) = nullptr;
    void (*unreserve)(void *, void **, Address, std::uint64_t) = nullptr;
    Handle (*create)(void *, void **, std::uint64_t) = nullptr;
    void (*release)(void *, void **, Handle) = nullptr;
    void (*map)(void *, void **, Address, std::uint64_t, Handle) = nullptr;
    void (*unmap)(void *, void **, Address, std::uint64_t) = nullptr;
    void (*grant)(void *, void **, Address, std::uint64_t) = nullptr;
    void (*share)(void *, void **, int, const Address *, const std::uint64_t *, std::size_t, bool) = nullptr;
    Address (*malloc)(void *, void **, std::uint64_t) = nullptr;
    void (*free)(void *, void **, Address) = nullptr;
    Address (*malloc_managed)(void *, void **, std::uint64_t) = nullptr;
    Address (*malloc_async)(void *, void **, std::uint64_t, Handle) = nullptr;
    void (*free_async)(void *, void **, Address, Handle) = nullptr;
    bool (*may_free)(void *, void **, Handle) = nullptr;
    void (*share_pool)(void *, void **, int, bool) = nullptr;
    std::uint64_t (*pool_reserved)(void *, void **) = nullptr;
    Mark (*mark)(void *, void **, Handle) = nullptr;
    bool (*is_past)(void *, void **, Mark) = nullptr;
    void (*drop)(void *, void **, Mark) = nullptr;
    bool (*synchronize)(void *, void **, Handle) = nullptr;
    void (*forget)(void *, void **, Handle) = nullptr;
    void (*watch)(void *, void **, Handle) = nullptr;
    bool (*is_out_of_memory)(void *, void *) = nullptr;
    double (*now)(void *) = nullptr;
    void (*discard)(void *) = nullptr;  // an exception that nobody needs
};

class Supply {
  public:
    explicit Supply(const SupplyCalls &calls) : calls_(calls) {}

    std::uint64_t granule() const { return calls_.granule; }
    Address reserve(std::uint64_t nbytes) { return map_call(calls_.reserve, nbytes); }
    void unreserve(Address start, std::uint64_t nbytes) { map_call(calls_.unreserve, start, nbytes); }
    Handle create(std::uint64_t nbytes) { return map_call(calls_.create, nbytes); }
    void release(Handle handle) { map_call(calls_.release, handle); }
    void map(Address start, std::uint64_t nbytes, Handle handle) { map_call(calls_.map, start, nbytes, handle); }
    void unmap(Address start, std::uint64_t nbytes) { map_call(calls_.unmap, start, nbytes); }
    void grant(Address start, std::uint64_t nbytes) { map_call(calls_.grant, start, nbytes); }
    Address malloc(std::uint64_t nbytes) { return call(calls_.malloc, nbytes); }
    void free(Address ptr) { call(calls_.free, ptr); }
    Address malloc_managed(std::uint64_t nbytes) { return call(calls_.malloc_managed, nbytes); }
    Address malloc_async(std::uint64_t nbytes, Handle stream) { return call(calls_.malloc_async, nbytes, stream); }
    void free_async(Address ptr, Handle stream) { call(calls_.free_async, ptr, stream); }
    bool may_free(Handle stream) { return call(calls_.may_free, stream); }
    void share_pool(int ordinal, bool enable) { call(calls_.share_pool, ordinal, enable); }
    std::uint64_t pool_reserved() { return call(calls_.pool_reserved); }
    Mark mark(Handle stream) { return call(calls_.mark, stream); }
    bool is_past(Mark mark) { return call(calls_.is_past, mark); }
    void drop(Mark mark) { call(calls_.drop, mark); }
    bool synchronize(Handle stream) { return call(calls_.synchronize, stream); }
    void forget(Handle stream) { call(calls_.forget, stream); }
    void watch(Handle stream) { call(calls_.watch, stream); }
    void share(int ordinal, const std::vector<Address> &starts, const std::vector<std::uint64_t> &sizes, bool enable) {
        map_call(calls_.share, ordinal, starts.data(), sizes.data(), starts.size(), enable);
    }
    bool is_out_of_memory(void *error) { return calls_.is_out_of_memory(calls_.self, error); }
    double now() { return calls_.now(calls_.self); }
    void discard(void *error) { calls_.discard(error); }

  private:
    template <typename Result, typename... Parameters>
    Result call(Result (*function)(void *, void **, Parameters...), std::common_type_t<Parameters>... arguments) {
        return call_on(calls_.self, function, arguments...);
    }

    template <typename Result, typename... Parameters>
    Result map_call(Result (*function)(void *, void **, Parameters...), std::common_type_t<Parameters>... arguments) {
        return call_on(calls_.memory, function, arguments...);
    }

    template <typename Result, typename... Parameters>
    static Result call_on(void *self, Result (*function)(void *, void **, Parameters...),
                          std::common_type_t<Parameters>... arguments) {
        void *error = nullptr;
        if constexpr (std::is_void_v<Result>) {
            function(self, &error, arguments...);
            if (error != nullptr) throw SupplyError{error};
        } else {
            Result result = function(self, &error, arguments...);
            if (error != nullptr) throw SupplyError{error};
            return result;
        }
    }

    SupplyCalls calls_;
};

}  // namespace allotment
