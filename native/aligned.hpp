// Zeroed memory aligned to cache lines, so that no vector load straddles two of them.
#pragma once

#include <cstddef>
#include <cstring>
#include <memory>
#include <new>

namespace bitclass {

template <class T>
class AlignedArray {
public:
    static constexpr std::size_t kAlignment = 64;

    AlignedArray() = default;
    explicit AlignedArray(std::size_t size) : size_(size) {
        if (size > (static_cast<std::size_t>(-1) - kAlignment) / sizeof(T)) throw std::bad_alloc();
        const std::size_t bytes = (size * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
        void* memory = ::operator new(bytes, std::align_val_t{kAlignment});
        std::memset(memory, 0, bytes);
        data_.reset(static_cast<T*>(memory));
    }

    T* data() { return data_.get(); }
    const T* data() const { return data_.get(); }
    std::size_t size() const { return size_; }
    T& operator[](std::size_t i) { return data_.get()[i]; }
    const T& operator[](std::size_t i) const { return data_.get()[i]; }

private:
    struct Free {
        void operator()(T* memory) const { ::operator delete(memory, std::align_val_t{kAlignment}); }
    };
    std::unique_ptr<T, Free> data_;
    std::size_t size_ = 0;
};

}  // namespace bitclass
