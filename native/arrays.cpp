#include "arrays.hpp"

namespace bitclass {
namespace {

// The bytes from an array's first to its last, whatever lies between its entries.
struct Extent {
    std::uintptr_t begin;
    std::uintptr_t end;  // begin where there are no entries
};

Extent extent_of(const Py_buffer& view) {
    const auto start = reinterpret_cast<std::uintptr_t>(view.buf);
    Extent extent{start, start + static_cast<std::uintptr_t>(view.itemsize)};
    for (int axis = 0; axis < view.ndim; ++axis) {
        if (view.shape[axis] == 0) return {start, start};
        const Py_ssize_t reach = (view.shape[axis] - 1) * view.strides[axis];
        // A negative reach wraps around, and lands below the start.
        (reach < 0 ? extent.begin : extent.end) += static_cast<std::uintptr_t>(reach);
    }
    return extent;
}

// NumPy's name of a buffer's element type, or its format where NumPy has no plain number for it.
std::string dtype_of(const Py_buffer& view) {
    const std::string format = view.format == nullptr ? "B" : view.format;
    const std::size_t at = format.find_first_not_of("@=<");  // native order; big-endian keeps its '>'
    const std::string bits = std::to_string(8 * view.itemsize);
    if (at == std::string::npos || format.size() != at + 1) return "'" + format + "'";
    switch (format[at]) {
        case 'b': case 'h': case 'i': case 'l': case 'q': return "int" + bits;
        case 'B': case 'H': case 'I': case 'L': case 'Q': return "uint" + bits;
        case 'e': case 'f': case 'd': return "float" + bits;
        case '?': return "bool";
        default: return "'" + format + "'";
    }
}

}  // namespace

AnyArray::AnyArray(nb::handle object, const char* name, int n_dims, bool writable)
    : name_(name), writable_(writable) {
    if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        const std::string type = nb::cast<std::string>(nb::str(object.type().attr("__name__")));
        throw nb::type_error((std::string(name) + ": expected an array, found " + type).c_str());
    }
    dtype_ = dtype_of(view_);
    if (view_.ndim != n_dims) {
        const std::string message = std::string(name) + ": expected " + std::to_string(n_dims) +
                                    " dimensions, found " + std::to_string(view_.ndim);
        PyBuffer_Release(&view_);
        throw nb::value_error(message.c_str());
    }
    if (writable && view_.readonly) {
        PyBuffer_Release(&view_);
        throw nb::value_error((std::string(name) + ": expected a writable array, found a read-only one").c_str());
    }
}

bool AnyArray::overlaps(const AnyArray& other) const {
    const Extent a = extent_of(view_);
    const Extent b = extent_of(other.view_);
    return a.begin != a.end && b.begin != b.end && a.begin < b.end && b.begin < a.end;
}

void AnyArray::require_length(int axis, std::size_t length) const {
    if (shape(axis) == length) return;
    throw nb::value_error((std::string(name_) + ": expected length " + std::to_string(length) + " along axis " +
                           std::to_string(axis) + ", found " + std::to_string(shape(axis)))
                              .c_str());
}

void AnyArray::refuse_type(const std::string& expected) const {
    throw nb::type_error((std::string(name_) + ": expected " + expected + ", found " + dtype_).c_str());
}

void AnyArray::refuse_layout(const std::string& expected, bool aligned) const {
    const char* const layout = aligned ? "an array in another layout" : "an array that is not aligned";
    throw nb::type_error((std::string(name_) + ": expected " + expected + ", found " + layout).c_str());
}

void require_apart(std::initializer_list<const AnyArray*> arrays) {
    for (const AnyArray* written : arrays) {
        if (!written->writable()) continue;
        for (const AnyArray* other : arrays) {
            if (other == written || !written->overlaps(*other)) continue;
            throw nb::value_error(
                (std::string(written->name()) + ": expected memory of its own, found an overlap with " + other->name())
                    .c_str());
        }
    }
}

void require_threads(int n_threads) {
    if (n_threads >= 1) return;
    throw nb::value_error(("n_threads: expected at least 1, found " + std::to_string(n_threads)).c_str());
}

}  // namespace bitclass
