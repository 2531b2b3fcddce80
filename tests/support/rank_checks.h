// For tests that run on several MPI ranks (tests/ranks). A rank that stops at a failed assertion while the others go on
// to a collective would hang the test, so assertions that stop a test agree across the ranks first:
//
//   TEST_CASE("…", "[ranks][np2][np4]") {
//     HostComm& world = longhaul::testing::rank_world();
//     REQUIRE_ALL_RANKS(world, groups.expert.size == 2);
//
// A plain CHECK is fine anywhere, a plain REQUIRE only after the last communication. The tags say with how many ranks
// the test is run: [np2], [np3], [np4].
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <string>

#include "comm/host_comm.h"
#include "comm/mpi_host_comm.h"

namespace longhaul::testing {

// The control plane over all ranks of this test program, and its journal.
[[nodiscard]] MpiHostComm& rank_world();
[[nodiscard]] CommJournal& rank_journal();

// Collective. Which ranks gave false: "false on ranks 1, 3 of data"; empty when none did.
[[nodiscard]] std::string ranks_that_failed(HostComm& comm, bool here);

}  // namespace longhaul::testing

#define LH_ALL_RANKS_IMPL(comm, assertion, ...)                                                              \
  do {                                                                                                       \
    const std::string lh_failed = ::longhaul::testing::ranks_that_failed(comm, static_cast<bool>(__VA_ARGS__)); \
    INFO(#__VA_ARGS__ << ": " << lh_failed);                                                                 \
    assertion(lh_failed.empty());                                                                            \
  } while (false)

// Collective over `comm`: fails on all its ranks when the condition is false on any.
#define CHECK_ALL_RANKS(comm, ...) LH_ALL_RANKS_IMPL(comm, CHECK, __VA_ARGS__)
#define REQUIRE_ALL_RANKS(comm, ...) LH_ALL_RANKS_IMPL(comm, REQUIRE, __VA_ARGS__)
