// Whether another hardware thread runs on the core of the calling one: a neighbour that no process
// list of a virtual machine shows, and that takes half of a core's units and its renaming of tiles.
#pragma once

namespace kvasir::backend::cpu {

// The share of some milliseconds in which independent additions took clearly longer than as many in
// fewer, longer chains, which a core that is alone does side by side in the same time: 0 to 1.
// Below 0 where this is not measured (not x86-64).
double share_of_shared_time() noexcept;

}  // namespace kvasir::backend::cpu
