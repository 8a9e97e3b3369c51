// Character classes and case mappings as Python's str methods define them (Unicode properties
// through utf8proc).
#pragma once

#include <string>
#include <string_view>

namespace kvasir::text::tmpl {

bool is_space(char32_t c) noexcept;     // str.isspace
bool is_line_end(char32_t c) noexcept;  // what str.splitlines cuts at
bool is_alpha(char32_t c) noexcept;
bool is_digit(char32_t c) noexcept;    // Nd and the superscript-like digits
bool is_decimal(char32_t c) noexcept;  // Nd
bool is_numeric(char32_t c) noexcept;
bool is_printable(char32_t c) noexcept;  // not escaped by repr
bool is_lower(char32_t c) noexcept;
bool is_upper(char32_t c) noexcept;
bool is_title(char32_t c) noexcept;
bool is_case_ignorable(char32_t c) noexcept;  // for the final-sigma rule

// Full mappings: one character may become up to three.
void append_upper(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);

}  // namespace kvasir::text::tmpl
