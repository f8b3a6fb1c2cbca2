// Memory straight from the CUDA driver: its functions are found when the engine is made, and no header of it is needed.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "supply.hpp"

namespace allotment {

// The driver's interface as it is since CUDA 11, in as much as it is used here.
namespace driver {

struct Location {
    int type;
    int id;
};

struct AllocationProperties {
    int type;
    int handle_types;
    Location location;
    void *win32_metadata;
    unsigned char flags[8];
};

struct AccessDescription {
    Location location;
    int flags;
};

constexpr int PINNED = 1;     // CU_MEM_ALLOCATION_TYPE_PINNED
constexpr int ON_DEVICE = 1;  // CU_MEM_LOCATION_TYPE_DEVICE
constexpr int NO_ACCESS = 0, READ_WRITE = 3;  // CU_MEM_ACCESS_FLAGS_PROT_…

struct Functions {
    int (*reserve)(Address *, std::size_t, std::size_t, Address, unsigned long long);
    int (*unreserve)(Address, std::size_t);
    int (*create)(Handle *, std::size_t, const AllocationProperties *, unsigned long long);
    int (*release)(Handle);
    int (*map)(Address, std::size_t, std::size_t, Handle, unsigned long long);
    int (*unmap)(Address, std::size_t);
    int (*set_access)(Address, std::size_t, const AccessDescription *, std::size_t);

    // Set the function at a place, in the order above, to an address.
    void set(std::size_t place, std::uintptr_t address) {
        static_assert(sizeof(Functions) == 7 * sizeof(std::uintptr_t));
        std::memcpy(reinterpret_cast<char *>(this) + place * sizeof(address), &address, sizeof(address));
    }
};

}  // namespace driver

// Makes and maps memory of one device. Its calls are made with the turn, so one at a time.
class DriverMemory {
  public:
    // `explain` returns the exception of Python for a function's name and its result, as the supply says it.
    DriverMemory(const driver::Functions &functions, int ordinal, void *supply,
                 void *(*explain)(void *, const char *, int))
        : functions_(functions), ordinal_(ordinal), supply_(supply), explain_(explain),
          readers_{description(ordinal, driver::READ_WRITE)} {}

    void fill(SupplyCalls &calls) {
        calls.memory = this;
        calls.reserve = [](void *self, void **error, std::uint64_t nbytes) {
            Address start = 0;
            of(self).check("cuMemAddressReserve", of(self).functions_.reserve(&start, nbytes, 0, 0, 0), error);
            return start;
        };
        calls.unreserve = [](void *self, void **error, Address start, std::uint64_t nbytes) {
            of(self).check("cuMemAddressFree", of(self).functions_.unreserve(start, nbytes), error);
        };
        calls.create = [](void *self, void **error, std::uint64_t nbytes) {
            driver::AllocationProperties wanted{driver::PINNED, 0, {driver::ON_DEVICE, of(self).ordinal_}, nullptr, {}};
            Handle handle = 0;
            of(self).check("cuMemCreate", of(self).functions_.create(&handle, nbytes, &wanted, 0), error);
            return handle;
        };
        calls.release = [](void *self, void **error, Handle handle) {
            of(self).check("cuMemRelease", of(self).functions_.release(handle), error);
        };
        calls.map = [](void *self, void **error, Address start, std::uint64_t nbytes, Handle handle) {
            of(self).check("cuMemMap", of(self).functions_.map(start, nbytes, 0, handle, 0), error);
        };
        calls.unmap = [](void *self, void **error, Address start, std::uint64_t nbytes) {
            of(self).check("cuMemUnmap", of(self).functions_.unmap(start, nbytes), error);
        };
        calls.grant = [](void *self, void **error, Address start, std::uint64_t nbytes) {
            of(self).set_access(start, nbytes, of(self).readers_, error);
        };
        calls.share = [](void *self, void **error, int ordinal, const Address *starts, const std::uint64_t *sizes,
                         std::size_t count, bool enable) {
            of(self).share(ordinal, starts, sizes, count, enable, error);
        };
    }

  private:
    static DriverMemory &of(void *self) { return *static_cast<DriverMemory *>(self); }

    static driver::AccessDescription description(int ordinal, int flags) {
        return {{driver::ON_DEVICE, ordinal}, flags};
    }

    bool check(const char *name, int result, void **error) {
        if (result != 0) *error = explain_(supply_, name, result);
        return result == 0;
    }

    bool set_access(Address start, std::uint64_t nbytes, const std::vector<driver::AccessDescription> &readers,
                    void **error) {
        return check("cuMemSetAccess", functions_.set_access(start, nbytes, readers.data(), readers.size()), error);
    }

    // Let a device touch ranges, and what is granted from now on, or not; where that fails, undo what was done.
    void share(int ordinal, const Address *starts, const std::uint64_t *sizes, std::size_t count, bool enable,
               void **error) {
        int flags[] = {driver::NO_ACCESS, driver::READ_WRITE};
        for (std::size_t i = 0; i < count; ++i) {
            if (set_access(starts[i], sizes[i], {description(ordinal, flags[enable])}, error)) continue;
            driver::AccessDescription before = description(ordinal, flags[!enable]);
            while (i-- > 0) functions_.set_access(starts[i], sizes[i], &before, 1);
            return;
        }
        auto is_it = [&](const driver::AccessDescription &reader) { return reader.location.id == ordinal; };
        readers_.erase(std::remove_if(readers_.begin(), readers_.end(), is_it), readers_.end());
        if (enable) readers_.push_back(description(ordinal, driver::READ_WRITE));
    }

    driver::Functions functions_;
    int ordinal_;
    void *supply_;
    void *(*explain_)(void *, const char *, int);
    std::vector<driver::AccessDescription> readers_;
};

}  // namespace allotment
