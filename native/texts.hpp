// Python's texts as bytes.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "arrays.hpp"

namespace bitclass {

// The UTF-8 bytes of a sequence of str or bytes. Must be made and destroyed with the GIL held.
class Texts {
public:
    explicit Texts(nb::handle sequence);

    std::size_t size() const { return views_.size(); }
    const std::vector<std::string_view>& views() const { return views_; }
    std::string_view operator[](std::size_t i) const { return views_[i]; }

    static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;  // so that counts fit in 32 bits

private:
    std::string_view view(PyObject* item, std::size_t i);

    nb::object items_;
    std::vector<nb::object> encoded_;
    std::vector<std::string_view> views_;
};

}  // namespace bitclass
