// The accounts and checks around a policy. The twin of engine/engine.py.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "policy.hpp"
#include "table.hpp"

namespace allotment {

constexpr std::uint64_t LOOK_EVERY = 1024;

struct Account {
    std::uint64_t current = 0, peak = 0, allocations = 0, frees = 0, blocks = 0;
};

// What a free came to.
enum class Freed : int {
    DONE,
    DUE,       // done, and it is time to look around
    USED,      // off the books; other streams use it, so `free_used` is to follow
    NOT_LIVE,  // nothing was done: no such block,
    WRONG_SIZE // or one of another size
};

// An engine, whatever its policy.
class Engine {
  public:
    virtual ~Engine() = default;

    // A block at hand, booked or not; 0 if there is none.
    virtual Address take_cached(std::uint64_t size, Handle stream, std::int64_t pool, bool booked) = 0;
    virtual Address take(std::uint64_t size, Handle stream, std::int64_t pool, bool booked) = 0;
    // Free a booked block. `size` is the size given, and becomes that of the block where it is another.
    virtual Freed free(Address ptr, std::uint64_t &size) = 0;
    // The rest of a free of a block that other streams use; it is on the books again if that fails.
    virtual void free_used(Address ptr, bool booked) = 0;
    // Free a block that nobody booked; whether `free_used` is to follow.
    virtual bool give(Address ptr) = 0;
    virtual void enter(Address ptr, std::uint64_t size) = 0;
    virtual Freed leave(Address ptr, std::uint64_t &size, Handle &stream) = 0;
    virtual void record_use(Address ptr, Handle stream) = 0;
    virtual bool is_booked(Address ptr) = 0;
    // The address of each booked block, and the size that was asked for.
    virtual std::vector<std::pair<Address, std::uint64_t>> booked_blocks() = 0;
    // The bytes of a block that is handed out, for callers that free by the address alone; 0 if there is none.
    virtual std::uint64_t size_of(Address ptr) = 0;

    virtual Account account() = 0;
    virtual void reset_peak() = 0;

    // Those of the policy.
    virtual Figures figures() = 0;
    virtual void reset_peak_reserved() = 0;
    virtual std::uint64_t limit() = 0;
    virtual std::uint64_t cache_limit() = 0;
    virtual void set_limit(std::uint64_t limit) = 0;
    virtual void set_cache_limit(std::uint64_t limit) = 0;
    virtual void look_around() = 0;
    virtual void trim(std::uint64_t keep) = 0;
    virtual void release_pool(std::int64_t pool) = 0;
    virtual void share(int ordinal, bool enable) = 0;
    virtual void watch(Handle stream) = 0;
    virtual void discard(void *error) = 0;
};

template <typename Policy> class EngineWith final : public Engine {
  public:
    template <typename... Arguments> explicit EngineWith(Arguments &&...arguments) : policy_(arguments...) {}

    Address take_cached(std::uint64_t size, Handle stream, std::int64_t pool, bool booked) override {
        Guard guard(policy_.lock);
        Item *block = policy_.take_cached(size, stream, pool);
        return block == nullptr ? 0 : note(block, size, booked);
    }

    Address take(std::uint64_t size, Handle stream, std::int64_t pool, bool booked) override {
        Item *block = policy_.take(size, stream, pool);
        Guard guard(policy_.lock);
        return note(block, size, booked);
    }

    Freed free(Address ptr, std::uint64_t &size) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        if (block == nullptr || !block->is_booked) return Freed::NOT_LIVE;
        if (block->size != size) {
            size = block->size;
            return Freed::WRONG_SIZE;
        }
        unbook(block);
        if (!block->users.empty()) return Freed::USED;
        live_.remove(ptr);
        policy_.give(block);
        return account_.frees % LOOK_EVERY == 0 || policy_.is_due() ? Freed::DUE : Freed::DONE;
    }

    void free_used(Address ptr, bool booked) override {
        std::vector<Handle> users;
        Item *block;
        {
            Guard guard(policy_.lock);
            block = live_.find(ptr);
            live_.remove(ptr);
            users.swap(block->users);
        }
        try {
            policy_.give_after(block, users);
        } catch (...) {
            Guard guard(policy_.lock);
            block->users.swap(users);
            live_.add(ptr, block);
            if (booked) rebook(block);
            throw;
        }
    }

    bool give(Address ptr) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        if (!block->users.empty()) return true;
        live_.remove(ptr);
        policy_.give(block);
        return false;
    }

    void enter(Address ptr, std::uint64_t size) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        block->size = size;
        book(block);
    }

    Freed leave(Address ptr, std::uint64_t &size, Handle &stream) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        if (block == nullptr || !block->is_booked) return Freed::NOT_LIVE;
        if (block->size != size) {
            size = block->size;
            return Freed::WRONG_SIZE;
        }
        stream = Policy::stream_of(block);
        unbook(block);
        return Freed::DONE;
    }

    void record_use(Address ptr, Handle stream) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        if (block == nullptr || stream == Policy::stream_of(block)) return;
        auto &users = block->users;
        if (std::find(users.begin(), users.end(), stream) == users.end()) users.push_back(stream);
    }

    bool is_booked(Address ptr) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        return block != nullptr && block->is_booked;
    }

    std::vector<std::pair<Address, std::uint64_t>> booked_blocks() override {
        Guard guard(policy_.lock);
        std::vector<std::pair<Address, std::uint64_t>> found;
        found.reserve(live_.size());
        live_.visit([&found](Address start, const Item &block) {
            if (block.is_booked) found.emplace_back(start, block.size);
        });
        return found;
    }

    std::uint64_t size_of(Address ptr) override {
        Guard guard(policy_.lock);
        Item *block = live_.find(ptr);
        return block == nullptr ? 0 : block->size;
    }

    Account account() override {
        Guard guard(policy_.lock);
        return account_;
    }

    void reset_peak() override {
        Guard guard(policy_.lock);
        account_.peak = account_.current;
    }

    Figures figures() override { return policy_.figures(); }
    void reset_peak_reserved() override { policy_.reset_peak(); }
    std::uint64_t limit() override { return policy_.get_limit(); }
    std::uint64_t cache_limit() override { return policy_.get_cache_limit(); }
    void set_limit(std::uint64_t limit) override { policy_.set_limit(limit); }
    void set_cache_limit(std::uint64_t limit) override { policy_.set_cache_limit(limit); }
    void look_around() override { policy_.look_around(); }
    void trim(std::uint64_t keep) override { policy_.trim(keep); }
    void release_pool(std::int64_t pool) override { policy_.release_pool(pool); }
    void share(int ordinal, bool enable) override { policy_.share(ordinal, enable); }
    void watch(Handle stream) override { policy_.watch(stream); }
    void discard(void *error) override { policy_.discard(error); }

  private:
    using Item = typename Policy::Item;
    using Guard = std::lock_guard<SpinLock>;

    Address note(Item *block, std::uint64_t size, bool booked) {
        block->size = size;
        live_.add(block->start, block);
        if (booked) book(block);
        return block->start;
    }

    void book(Item *block) {
        block->is_booked = true;
        ++account_.blocks;
        ++account_.allocations;
        account_.current += block->size;
        if (account_.current > account_.peak) account_.peak = account_.current;
    }

    void unbook(Item *block) {
        block->is_booked = false;
        --account_.blocks;
        ++account_.frees;
        account_.current -= block->size;
    }

    void rebook(Item *block) {
        book(block);
        --account_.allocations;
        --account_.frees;
    }

    Policy policy_;
    AddressTable<Item> live_;
    Account account_;
};

}  // namespace allotment
