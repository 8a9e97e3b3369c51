#include "hub/detail/sqlite.h"

#include <sqlite3.h>

namespace kvasir::hub {
namespace {

constexpr int kBusyMs = 10'000;

Error error_of(sqlite3* db, int code) {
  const int primary = code & 0xff;
  const bool is_damaged = primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB;
  return {Errc::io, std::string("registry: ") + (db ? sqlite3_errmsg(db) : sqlite3_errstr(code)),
          is_damaged ? kDamaged : std::string_view()};
}

}  // namespace

void Statement::Free::operator()(sqlite3_stmt* statement) const noexcept {
  sqlite3_finalize(statement);
}
void Database::Close::operator()(sqlite3* db) const noexcept { sqlite3_close_v2(db); }

void Statement::bind(int at, std::string_view text) {
  sqlite3_bind_text64(statement_.get(), at, text.data(), text.size(), SQLITE_TRANSIENT,
                      SQLITE_UTF8);
}
void Statement::bind(int at, std::int64_t number) {
  sqlite3_bind_int64(statement_.get(), at, number);
}
void Statement::bind(int at, std::optional<double> number) {
  number ? sqlite3_bind_double(statement_.get(), at, *number)
         : sqlite3_bind_null(statement_.get(), at);
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_.get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return error_of(sqlite3_db_handle(statement_.get()), code);
}

std::string Statement::text(int column) const {
  const auto* bytes = sqlite3_column_text(statement_.get(), column);
  const int n = sqlite3_column_bytes(statement_.get(), column);
  return bytes ? std::string(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n))
               : std::string();
}
std::int64_t Statement::number(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}
std::optional<double> Statement::real(int column) const {
  if (sqlite3_column_type(statement_.get(), column) == SQLITE_NULL) return std::nullopt;
  return sqlite3_column_double(statement_.get(), column);
}

Result<Database> Database::open(const std::string& path) {
  sqlite3* raw = nullptr;
  const int code =
      sqlite3_open_v2(path.c_str(), &raw,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_FULLMUTEX, nullptr);
  Database out(raw);
  if (code != SQLITE_OK) return error_of(raw, code);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyMs);
  return out;
}

Status Database::run(const char* sql) {
  const int code = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return error_of(db_.get(), code);
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code =
      sqlite3_prepare_v2(db_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return error_of(db_.get(), code);
  return Statement(statement);
}

Status Database::transaction(const std::function<Status()>& work) {
  KVASIR_TRY_DO(run("BEGIN IMMEDIATE"));
  Status done = work();
  if (done) done = run("COMMIT");
  if (!done) (void)run("ROLLBACK");
  return done;
}

}  // namespace kvasir::hub
