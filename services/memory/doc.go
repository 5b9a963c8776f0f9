// Package memory is Weft's memory service: it keeps what agents remember, finds it again, and puts it
// together for the eyes of a model. It owns the items of every workspace; nobody else writes them.
//
// Three layers:
//   - the store keeps items (internal/store is the contract, storetest its suite, internal/sqlite
//     and internal/mongo the adapters),
//   - retrieval finds them: words by their stem (internal/lexical), BM25, recency,
//   - context chooses within a budget of tokens: pinned, recent, recalled.
//
// Subjects in, with the tenant, workspace and principal that the server pinned there:
//
//	weft.v1.req.<tenant>.<workspace>.<principal>.memory.{add,supersede,get,search,list,forget,history,context}
//	weft.v1.int.<caller>.memory.{delete-workspace,delete-tenant}
//
// None out. An item has no states but these: valid, superseded (it says since when and by what), and
// forgotten (gone, but for a tombstone without a word of it).
//
// Failure: a reply means that the change is on disk. A request that failed or was never answered had its
// effect whole or not at all, forget excepted, which may have got a part of the way; each can be repeated. Add and
// supersede repeat safely under a submission key; without one, a repeated add adds twice, and a repeated
// supersede supersedes its own first effect unless it named an id or a version. Any number of replicas can serve with the
// MongoDB store; with SQLite one process owns the directory.
package memory
