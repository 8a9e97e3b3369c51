#include "text/template/civil_time.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace kvasir::text {

namespace {

// Days since 1970-01-01 of a proleptic Gregorian date, counted in 400-year eras that begin in
// March.
std::int64_t days_from_civil(std::int64_t year, int month, int day) {
  year -= month <= 2 ? 1 : 0;
  const std::int64_t era = (year >= 0 ? year : year - 399) / 400;
  const std::int64_t year_of_era = year - era * 400;
  const std::int64_t day_of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year -
         719468;
}

}  // namespace

CivilTime CivilTime::from_unix(std::int64_t seconds) {
  std::int64_t days = seconds / 86400;
  std::int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  const std::int64_t z = days + 719468;
  const std::int64_t era = (z >= 0 ? z : z - 146096) / 146097;
  const std::int64_t day_of_era = z - era * 146097;
  const std::int64_t year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const std::int64_t day_of_year =
      day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const std::int64_t shifted_month = (5 * day_of_year + 2) / 153;  // 0 = March
  CivilTime t;
  t.day = static_cast<int>(day_of_year - (153 * shifted_month + 2) / 5 + 1);
  t.month = static_cast<int>(shifted_month < 10 ? shifted_month + 3 : shifted_month - 9);
  t.year = static_cast<int>(year_of_era + era * 400 + (t.month <= 2 ? 1 : 0));
  t.hour = static_cast<int>(rest / 3600);
  t.minute = static_cast<int>(rest / 60 % 60);
  t.second = static_cast<int>(rest % 60);
  return t;
}

namespace tmpl {

namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

class TimeFormatter {
 public:
  explicit TimeFormatter(const CivilTime& time) : t_(time) {
    t_.month = std::clamp(t_.month, 1, 12);
    days_ = days_from_civil(t_.year, t_.month, t_.day);
    weekday_ =
        static_cast<int>(((days_ + 4) % 7 + 7) % 7);  // 0 = Sunday; 1970-01-01 was a Thursday
    year_day_ = static_cast<int>(days_ - days_from_civil(t_.year, 1, 1));
  }

  std::string run(std::string_view format) {
    for (std::size_t at = 0; at < format.size(); ++at) {
      if (format[at] != '%' || at + 1 == format.size()) {
        out_ += format[at];
        continue;
      }
      flag_ = '\0';
      const std::size_t begin = at++;
      const bool is_flag =
          format[at] == '-' || format[at] == '_' || format[at] == '0' || format[at] == '^';
      if (is_flag && at + 1 < format.size()) flag_ = format[at++];
      if (!directive(format[at])) out_ += format.substr(begin, at - begin + 1);
    }
    return std::move(out_);
  }

 private:
  void number(std::int64_t value, int width, char pad = '0') {
    if (flag_ == '-') width = 0;
    if (flag_ == '_') pad = ' ';
    if (flag_ == '0') pad = '0';
    std::string digits = std::to_string(value);
    if (static_cast<int>(digits.size()) < width) {
      digits.insert(0, static_cast<std::size_t>(width) - digits.size(), pad);
    }
    out_ += digits;
  }

  void word(std::string_view text) {
    for (const char c : text)
      out_ += flag_ == '^' && c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  }

  bool nested(std::string_view format) {
    out_ += TimeFormatter(t_).run(format);
    return true;
  }

  int hour12() const { return t_.hour % 12 == 0 ? 12 : t_.hour % 12; }

  // ISO 8601: the week of the year's first Thursday is week 1.
  std::pair<std::int64_t, int> iso_week() const {
    const std::int64_t thursday = days_ - (weekday_ + 6) % 7 + 3;
    std::int64_t year = t_.year;
    if (thursday < days_from_civil(year, 1, 1)) --year;
    if (thursday >= days_from_civil(year + 1, 1, 1)) ++year;
    return {year, static_cast<int>((thursday - days_from_civil(year, 1, 1)) / 7 + 1)};
  }

  bool directive(char c) {
    switch (c) {
      case 'a':
        word(kDays[static_cast<std::size_t>(weekday_)].substr(0, 3));
        return true;
      case 'A':
        word(kDays[static_cast<std::size_t>(weekday_)]);
        return true;
      case 'b':
      case 'h':
        word(kMonths[static_cast<std::size_t>(t_.month - 1)].substr(0, 3));
        return true;
      case 'B':
        word(kMonths[static_cast<std::size_t>(t_.month - 1)]);
        return true;
      case 'C':
        number(t_.year / 100, 2);
        return true;
      case 'd':
        number(t_.day, 2);
        return true;
      case 'e':
        number(t_.day, 2, ' ');
        return true;
      case 'f':
        number(0, 6);
        return true;
      case 'g':
        number(iso_week().first % 100, 2);
        return true;
      case 'G':
        number(iso_week().first, 4);
        return true;
      case 'H':
        number(t_.hour, 2);
        return true;
      case 'k':
        number(t_.hour, 2, ' ');
        return true;
      case 'I':
        number(hour12(), 2);
        return true;
      case 'l':
        number(hour12(), 2, ' ');
        return true;
      case 'j':
        number(year_day_ + 1, 3);
        return true;
      case 'm':
        number(t_.month, 2);
        return true;
      case 'M':
        number(t_.minute, 2);
        return true;
      case 'p':
        word(t_.hour < 12 ? "AM" : "PM");
        return true;
      case 'P':
        word(t_.hour < 12 ? "am" : "pm");
        return true;
      case 's':
        number(days_ * 86400 + t_.hour * 3600 + t_.minute * 60 + t_.second, 1);
        return true;
      case 'S':
        number(t_.second, 2);
        return true;
      case 'u':
        number(weekday_ == 0 ? 7 : weekday_, 1);
        return true;
      case 'U':
        number((year_day_ + 7 - weekday_) / 7, 2);
        return true;
      case 'V':
        number(iso_week().second, 2);
        return true;
      case 'w':
        number(weekday_, 1);
        return true;
      case 'W':
        number((year_day_ + 7 - (weekday_ + 6) % 7) / 7, 2);
        return true;
      case 'y':
        number(t_.year % 100, 2);
        return true;
      case 'Y':
        number(t_.year, 1);
        return true;
      case 'c':
        return nested("%a %b %e %H:%M:%S %Y");
      case 'D':
      case 'x':
        return nested("%m/%d/%y");
      case 'F':
        return nested("%Y-%m-%d");
      case 'r':
        return nested("%I:%M:%S %p");
      case 'R':
        return nested("%H:%M");
      case 'T':
      case 'X':
        return nested("%H:%M:%S");
      case 'n':
        out_ += '\n';
        return true;
      case 't':
        out_ += '\t';
        return true;
      case 'z':
      case 'Z':
        return true;  // a reading without a zone, as Python's naive datetime
      case '%':
        out_ += '%';
        return true;
      default:
        return false;
    }
  }

  CivilTime t_;
  std::int64_t days_ = 0;
  int weekday_ = 0;
  int year_day_ = 0;
  char flag_ = '\0';
  std::string out_;
};

}  // namespace

std::string format_time(const CivilTime& time, std::string_view format) {
  return TimeFormatter(time).run(format);
}

}  // namespace tmpl
}  // namespace kvasir::text
