// A thin owner of an SQLite database and its statements. Errors keep whether the file is damaged,
// which callers cure by making it anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kvasir::hub {

inline constexpr std::string_view kDamaged = "registry_damaged";  // Error::id

class Statement {
 public:
  // Parameters from 1; columns from 0.
  void bind(int at, std::string_view text);
  void bind(int at, std::int64_t number);
  void bind(int at, std::optional<double> number);
  Result<bool> step();  // true: a row is there
  std::string text(int column) const;
  std::int64_t number(int column) const;
  std::optional<double> real(int column) const;

 private:
  friend class Database;
  struct Free {
    void operator()(sqlite3_stmt* statement) const noexcept;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Free> statement_;
};

class Database {
 public:
  static Result<Database> open(const std::string& path);  // ":memory:" too
  Status run(const char* sql);                            // any number of statements, no rows
  Result<Statement> prepare(std::string_view sql);
  // All of it or nothing; other processes wait up to the busy timeout.
  Status transaction(const std::function<Status()>& work);

 private:
  struct Close {
    void operator()(sqlite3* db) const noexcept;
  };
  explicit Database(sqlite3* db) : db_(db) {}
  std::unique_ptr<sqlite3, Close> db_;
};

}  // namespace kvasir::hub
