// Arrays from Python, checked before a kernel sees their pointer. Every error names the argument.
#pragma once

#include <unistd.h>

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>


namespace bitclass {

namespace nb = nanobind;

// Name of an element type as NumPy spells it.
template <class T>
std::string dtype_name() {
    const std::string bits = std::to_string(8 * sizeof(T));
    if constexpr (std::is_floating_point_v<T>) return "float" + bits;
    return (std::is_signed_v<T> ? "int" : "uint") + bits;
}

// Any array that offers the buffer protocol. Must be made and destroyed with the GIL held.
class AnyArray {
public:
    AnyArray(nb::handle object, const char* name, int n_dims, bool writable);
    ~AnyArray() { PyBuffer_Release(&view_); }
    AnyArray(const AnyArray&) = delete;
    AnyArray& operator=(const AnyArray&) = delete;

    std::size_t shape(int axis) const { return static_cast<std::size_t>(view_.shape[axis]); }
    std::ptrdiff_t stride(int axis) const { return view_.strides[axis]; }  // in bytes
    const std::string& dtype() const { return dtype_; }
    void* pointer() const { return view_.buf; }
    bool aligned_to(std::size_t bytes) const {
        return reinterpret_cast<std::uintptr_t>(view_.buf) % bytes == 0;
    }

    const char* name() const { return name_; }
    bool writable() const { return writable_; }
    // Whether a byte lies between the first and last of both arrays.
    bool overlaps(const AnyArray& other) const;

    // ValueError unless the axis has that length.
    void require_length(int axis, std::size_t length) const;
    // TypeErrors that say what was expected, and which element type or layout was found.
    [[noreturn]] void refuse_type(const std::string& expected) const;
    [[noreturn]] void refuse_layout(const std::string& expected, bool aligned) const;

private:
    Py_buffer view_{};
    const char* name_;
    bool writable_;
    std::string dtype_;
};

// An aligned C-contiguous array of one element type; a const T accepts read-only arrays.
template <class T>
class Array : public AnyArray {
public:
    Array(nb::handle object, const char* name, int n_dims)
        : AnyArray(object, name, n_dims, !std::is_const_v<T>) {
        using Element = std::remove_const_t<T>;
        std::ptrdiff_t expected_stride = sizeof(T);
        bool contiguous = true;
        for (int axis = n_dims - 1; axis >= 0; --axis) {
            contiguous = contiguous && (stride(axis) == expected_stride || shape(axis) <= 1);
            expected_stride *= static_cast<std::ptrdiff_t>(shape(axis));
        }
        const std::string expected = "a C-contiguous array of " + dtype_name<Element>();
        const bool aligned = aligned_to(alignof(T));
        if (dtype() != dtype_name<Element>()) refuse_type(expected);
        if (expected_stride != 0 && !(contiguous && aligned)) refuse_layout(expected, aligned);
    }

    T* data() const { return static_cast<T*>(pointer()); }
};

// ValueError where an array that a kernel writes overlaps another argument: what was checked before
// the kernel began would no longer hold while it runs. All arrays of a call are given.
void require_apart(std::initializer_list<const AnyArray*> arrays);

// ValueError unless n_threads >= 1.
void require_threads(int n_threads);

// Lets other Python threads run while a kernel works.
//
// Before Python 3.14, a daemon thread that asks for the GIL while the interpreter shuts down is ended
// by pthread_exit, which unwinds the stack like an exception, and C++ answers that with terminate()
// in every destructor on the way. Such a thread is held here instead until the process has ended.
class WithoutGil {
public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    ~WithoutGil() {
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

private:
    PyThreadState* state_;
};

// The parts of the compiled module, each bound in a file of its own.
void bind_config(nb::module_& m);    // bindings.cpp
void bind_search(nb::module_& m);    // bindings_search.cpp
void bind_encode(nb::module_& m);    // bindings_encode.cpp
void bind_sparse(nb::module_& m);    // bindings_sparse.cpp
void bind_text(nb::module_& m);      // bindings_text.cpp
void bind_training(nb::module_& m);  // bindings_training.cpp

}  // namespace bitclass
