#include "hub/registry.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>

#include "hub/detail/candidates.h"
#include "hub/detail/posix.h"
#include "hub/detail/refs.h"
#include "hub/detail/sqlite.h"
#include "hub/repo.h"

namespace kvasir::hub {
namespace {

namespace fs = std::filesystem;

// Another number in user_version makes the tables anew.
constexpr std::int64_t kVersion = 2;
constexpr const char* kMakeTables = R"(
  DROP TABLE IF EXISTS models;
  DROP TABLE IF EXISTS folders;
  CREATE TABLE models (
    path TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, repo TEXT, revision TEXT, container TEXT,
    architecture TEXT, model_type TEXT, parameters INTEGER, size_bytes INTEGER,
    context_length INTEGER, quantization TEXT, vision INTEGER, experts_bytes INTEGER,
    prefill_speed REAL, decode_speed REAL, modified INTEGER);
  CREATE TABLE folders (path TEXT PRIMARY KEY);
  DROP TABLE IF EXISTS machines;
  CREATE TABLE machines (name TEXT PRIMARY KEY, bytes_per_second REAL, flops_per_second REAL);
  PRAGMA user_version = 2;)";
constexpr std::string_view kColumns =
    "path, fingerprint, repo, revision, container, architecture, model_type, parameters, "
    "size_bytes, context_length, quantization, vision, experts_bytes, prefill_speed, "
    "decode_speed, modified";

struct Row {
  ModelEntry entry;
  std::string fingerprint;
};

std::int64_t whole(std::uint64_t n) { return static_cast<std::int64_t>(n); }

Status write_row(Database& db, const Row& row) {
  KVASIR_TRY(Statement s, db.prepare("INSERT OR REPLACE INTO models (" + std::string(kColumns) +
                                     ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  const ModelEntry& e = row.entry;
  const std::string path = e.path.string();
  s.bind(1, path);
  s.bind(2, row.fingerprint);
  s.bind(3, e.repo);
  s.bind(4, e.revision);
  s.bind(5, e.container);
  s.bind(6, e.architecture);
  s.bind(7, e.model_type);
  s.bind(8, whole(e.n_parameters));
  s.bind(9, whole(e.size_bytes));
  s.bind(10, whole(e.context_length));
  s.bind(11, e.quantization);
  s.bind(12, std::int64_t{e.has_vision});
  s.bind(13, whole(e.experts_bytes));
  s.bind(14, e.prefill_speed);
  s.bind(15, e.decode_speed);
  s.bind(16, e.modified_s);
  KVASIR_TRY_DO(s.step());
  return {};
}

Row read_row(const Statement& s) {
  const auto size = [&](int column) { return static_cast<std::uint64_t>(s.number(column)); };
  Row row;
  ModelEntry& e = row.entry;
  e.path = s.text(0);
  row.fingerprint = s.text(1);
  e.repo = s.text(2);
  e.revision = s.text(3);
  e.container = s.text(4);
  e.architecture = s.text(5);
  e.model_type = s.text(6);
  e.n_parameters = size(7);
  e.size_bytes = size(8);
  e.context_length = size(9);
  e.quantization = s.text(10);
  e.has_vision = s.number(11) != 0;
  e.experts_bytes = size(12);
  e.prefill_speed = s.real(13);
  e.decode_speed = s.real(14);
  e.modified_s = s.number(15);
  return row;
}

Result<std::map<std::string, Row>> read_rows(Database& db) {
  KVASIR_TRY(Statement s, db.prepare("SELECT " + std::string(kColumns) + " FROM models"));
  std::map<std::string, Row> out;
  while (true) {
    KVASIR_TRY(const bool has_row, s.step());
    if (!has_row) return out;
    Row row = read_row(s);
    std::string path = row.entry.path.string();
    out.emplace(std::move(path), std::move(row));
  }
}

Result<std::vector<fs::path>> read_folders(Database& db) {
  KVASIR_TRY(Statement s, db.prepare("SELECT path FROM folders"));
  std::vector<fs::path> out;
  while (true) {
    KVASIR_TRY(const bool has_row, s.step());
    if (!has_row) return out;
    out.emplace_back(s.text(0));
  }
}

Status run_with(Database& db, std::string_view sql, const std::string& text) {
  KVASIR_TRY(Statement s, db.prepare(sql));
  s.bind(1, text);
  KVASIR_TRY_DO(s.step());
  return {};
}

Result<std::int64_t> version_of(Database& db) {
  KVASIR_TRY(Statement s, db.prepare("PRAGMA user_version"));
  KVASIR_TRY_DO(s.step());
  return s.number(0);
}

Result<Database> open_checked(const std::string& path) {
  KVASIR_TRY(Database db, Database::open(path));
  // Not on every file system; the default journal is as correct.
  if (const Status wal = db.run("PRAGMA journal_mode = WAL"); !wal && wal.error().id == kDamaged)
    return wal.error();
  {
    KVASIR_TRY(Statement check, db.prepare("PRAGMA quick_check(1)"));
    KVASIR_TRY(const bool has_row, check.step());
    if (!has_row || check.text(0) != "ok") return Error{Errc::io, "registry: damaged", kDamaged};
  }
  KVASIR_TRY_DO(db.transaction([&]() -> Status {
    KVASIR_TRY(const std::int64_t version, version_of(db));
    return version == kVersion ? Status() : db.run(kMakeTables);
  }));
  return db;
}

// Removes a damaged file, unless another process has just made it anew.
Result<Database> make_anew(const std::string& path) {
  const Fd guard(::open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (guard) (void)::flock(guard.get(), LOCK_EX);
  auto db = open_checked(path);
  if (db || db.error().id != kDamaged) return db;
  for (const char* ending : {"", "-wal", "-shm", "-journal"}) {
    std::error_code ec;
    fs::remove(path + ending, ec);
  }
  return open_checked(path);
}

Result<Database> open_or_make_anew(const std::string& path) {
  auto db = open_checked(path);
  if (db || db.error().id != kDamaged) return db;
  return make_anew(path);
}

}  // namespace

struct Registry::Impl {
  std::string path;
  std::mutex mutex;  // one statement of ours at a time
  Database db;

  Impl(std::string file, Database database) : path(std::move(file)), db(std::move(database)) {}

  // Damage that shows late is cured too, once.
  template <class Work>
  auto with_db(const Work& work) -> decltype(work(db)) {
    const std::lock_guard lock(mutex);
    auto result = work(db);
    if (result || result.error().id != kDamaged) return result;
    auto fresh = make_anew(path);
    if (!fresh) return std::move(fresh).error();
    db = *std::move(fresh);
    return work(db);
  }
};

namespace {

// One scan: compares what is on disk with the rows.
class Scan {
 public:
  explicit Scan(Database& db) : db_(db) {}

  Result<ScanReport> run(const std::vector<fs::path>& roots) {
    KVASIR_TRY(rows_, read_rows(db_));
    for (const fs::path& root : roots) {
      for (const Candidate& candidate : find_candidates(root)) look_at(candidate);
    }
    KVASIR_TRY_DO(db_.transaction([&] { return write(); }));
    report_.n_models = seen_.size();
    return std::move(report_);
  }

 private:
  void look_at(const Candidate& candidate) {
    const std::string path = candidate.path.string();
    if (seen_.contains(path) || !looked_at_.insert(path).second) return;
    if (!candidate.reason.empty()) {
      report_.skipped.push_back({candidate.path, candidate.reason});
      return;
    }
    const auto known = rows_.find(path);
    if (known != rows_.end() && known->second.fingerprint == candidate.fingerprint) {
      seen_.insert(path);
      return;
    }
    auto entry = describe_model(candidate.path);
    if (!entry) {
      report_.skipped.push_back({candidate.path, entry.error().what});
      return;
    }
    seen_.insert(path);
    fresh_.push_back({*std::move(entry), candidate.fingerprint});
    ++report_.n_read;
  }

  Status write() {
    for (const Row& row : fresh_) KVASIR_TRY_DO(write_row(db_, row));
    for (const auto& [path, row] : rows_) {
      if (seen_.contains(path)) continue;
      KVASIR_TRY_DO(run_with(db_, "DELETE FROM models WHERE path = ?", path));
      ++report_.n_gone;
    }
    return {};
  }

  Database& db_;
  std::map<std::string, Row> rows_;
  std::set<std::string> seen_, looked_at_;
  std::vector<Row> fresh_;
  ScanReport report_;
};

}  // namespace

Registry::Registry(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Registry::Registry(Registry&&) noexcept = default;
Registry& Registry::operator=(Registry&&) noexcept = default;
Registry::~Registry() = default;

Result<Registry> Registry::open(const fs::path& file) {
  std::string path = file.empty() ? ":memory:" : file.string();
  if (!file.empty() && file.has_parent_path()) KVASIR_TRY_DO(make_folders(file.parent_path()));
  auto db = open_or_make_anew(path);
  if (!db) return Error{db.error().code, path + ": " + db.error().what, db.error().id};
  return Registry(std::make_unique<Impl>(std::move(path), *std::move(db)));
}

Result<ScanReport> Registry::scan(const HubOptions& options, const std::vector<fs::path>& folders) {
  std::vector<fs::path> given;
  for (const fs::path& folder : folders) {
    std::error_code ec;
    given.push_back(fs::canonical(folder, ec));
    if (ec) return not_found(folder.string() + ": " + ec.message());
  }
  return impl_->with_db([&](Database& db) -> Result<ScanReport> {
    for (const fs::path& folder : given)
      KVASIR_TRY_DO(run_with(db, "INSERT OR IGNORE INTO folders VALUES (?)", folder.string()));
    std::vector<fs::path> roots;
    std::error_code ec;
    const fs::path cache = fs::canonical(options.cache, ec);
    if (!ec) roots.push_back(cache);
    KVASIR_TRY(const std::vector<fs::path> kept, read_folders(db));
    roots.insert(roots.end(), kept.begin(), kept.end());
    return Scan(db).run(roots);
  });
}

Result<std::vector<ModelEntry>> Registry::models() const {
  KVASIR_TRY(const auto rows, impl_->with_db([](Database& db) { return read_rows(db); }));
  std::vector<ModelEntry> out;
  for (const auto& [path, row] : rows) {
    out.push_back(row.entry);
    ModelEntry& entry = out.back();
    // Refs move without any file of the snapshot changing, so they are read as they are now.
    if (const auto place = place_of(entry.path))
      entry.refs = refs_of(place->repo_path, place->commit);
  }
  std::stable_sort(out.begin(), out.end(), [](const ModelEntry& a, const ModelEntry& b) {
    const std::string name_a = display_name(a), name_b = display_name(b);
    return name_a != name_b ? name_a < name_b : is_main(a) && !is_main(b);
  });
  return out;
}

Result<ModelEntry> Registry::find(std::string_view query) const {
  KVASIR_TRY(const std::vector<ModelEntry> entries, models());
  return find_model(entries, query);
}

Status Registry::record_speed(const fs::path& path, double prefill, double decode) {
  return impl_->with_db([&](Database& db) -> Status {
    KVASIR_TRY(Statement s, db.prepare("UPDATE models SET prefill_speed = ?, decode_speed = ? "
                                       "WHERE path = ?"));
    s.bind(1, std::optional(prefill));
    s.bind(2, std::optional(decode));
    const std::string text = model_path(path).string();
    s.bind(3, text);
    KVASIR_TRY_DO(s.step());
    return {};
  });
}

Result<std::optional<MachineRates>> Registry::machine_rates(const std::string& name) const {
  return impl_->with_db([&](Database& db) -> Result<std::optional<MachineRates>> {
    KVASIR_TRY(Statement s, db.prepare("SELECT bytes_per_second, flops_per_second FROM machines "
                                       "WHERE name = ?"));
    s.bind(1, name);
    KVASIR_TRY(const bool has_row, s.step());
    if (!has_row || !s.real(0) || !s.real(1)) return std::optional<MachineRates>();
    return std::optional(MachineRates{*s.real(0), *s.real(1)});
  });
}

Status Registry::record_machine_rates(const std::string& name, const MachineRates& rates) {
  return impl_->with_db([&](Database& db) -> Status {
    KVASIR_TRY(Statement s, db.prepare("INSERT OR REPLACE INTO machines VALUES (?,?,?)"));
    s.bind(1, name);
    s.bind(2, std::optional(rates.bytes_per_second));
    s.bind(3, std::optional(rates.flops_per_second));
    KVASIR_TRY_DO(s.step());
    return {};
  });
}

}  // namespace kvasir::hub
