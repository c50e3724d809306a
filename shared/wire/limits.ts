import type { Rate } from '../base/runtime/token-buckets.js';

/** The oldest version of proto/odmoe/v1 and of its rules that this release still speaks. */
export const OLDEST_PROTOCOL = 6;
/** The newest one. A conversation uses the newest that both peers speak (versions.ts). */
export const NEWEST_PROTOCOL = 6;
/** Grows when this release computes other bits than the one before it from the same model and prompt, on a processor or in exact arithmetic. */
export const ARITHMETIC_VERSION = 1;

export const MEGABYTE_BYTES = 1024 * 1024;
/** Greatest share of a worker in strict homes; the least is 1. It has many divisors, so that simple ratios of speeds are kept. */
export const MOST_SHARE = 24;

/** Most names in the counts of a daemon (Node.Counts). */
export const COUNTS_LIMIT = 4096;

/** Largest gRPC message either way. Larger tensors go in several messages; callers cut them. */
export const MESSAGE_SIZE_LIMIT_BYTES = 64 * MEGABYTE_BYTES;

/** Largest message that carries no tensors and no lists by token or daemon (wire-limits.ts). */
export const PLAIN_MESSAGE_LIMIT_BYTES = 2 * MEGABYTE_BYTES;

/** Largest first message of a stream: a hello, a welcome or a refusal. */
export const FIRST_MESSAGE_LIMIT_BYTES = MEGABYTE_BYTES;

/** Largest message from a peer that sends no tensors. grpc-js collects a message before our code sees it. */
export const PLAIN_RECEIVE_LIMIT_BYTES = 4 * MEGABYTE_BYTES;

/** Largest reply to a single call. */
export const REPLY_SIZE_LIMIT_BYTES = 17 * MEGABYTE_BYTES;

/** Most prompt tokens whose log-probabilities one reply holds. */
export const PROMPT_LOGPROBS_TOKENS = 64;

/** Most unsent bytes of a PeerStream before it gives its peer up. */
export const STREAM_BACKLOG_LIMIT_BYTES = 256 * 1024 * 1024;

/** Longest orderly end of a stream or a server before it is forced. */
export const CLOSE_GRACE_MS = 2000;

/** HTTP/2 window of a client: bytes that a peer may have on the way to us before it must wait. */
export const FLOW_CONTROL_WINDOW_BYTES = 1024 * 1024;

/** The same for pack pieces. A slow link must carry this many bytes before the reply to a ping counts as late. */
export const PACK_WINDOW_BYTES = 256 * 1024;

/** Most rows of hidden states or of a cache in one message. */
export const ROWS_LIMIT = 65_536;

/** Longest text in one message, except prompts: ids, names, addresses, error messages. */
export const TEXT_LENGTH_LIMIT = 4096;

/** Longest time to connect. */
export const CONNECT_TIMEOUT_MS = 3000;

/** Longest time of the question whether a peer speaks TLS, after a connection in plaintext has failed; and how often one address is asked. */
export const TLS_PROBE_TIMEOUT_MS = 1000;
export const TLS_PROBE_INTERVAL_MS = 60_000;
/** Most addresses whose answers are remembered. */
export const TLS_PROBES_KEPT_LIMIT = 256;

/** Most connections to a daemon at one time, in all and of one certificate, or host before it shows one. A node of a cluster opens a handful. */
export const CONNECTIONS_LIMIT = { all: 4096, ofHost: 512 } as const;

/** Most TLS handshakes under way at one time, in all and from one host. A handshake takes some milliseconds. */
export const TLS_HANDSHAKES_LIMIT = { all: 256, ofHost: 32 } as const;

/** Longest TLS handshake. */
export const TLS_HANDSHAKE_TIMEOUT_MS = 5000;

/** Most connections of refused peers that are open while they get the reason, and the time that each of them has to read it. */
export const REFUSED_CONNECTIONS_LIMIT = 32;
export const REFUSED_CONNECTION_MS = 3000;
/** Most bytes of a request of HTTP/1.1 that are thrown away while its sender gets the reason. */
export const REFUSED_REQUEST_LIMIT_BYTES = 64 * 1024;

/** Largest body of a request of a machine that asks to be let in, and largest reply, which holds the roster. */
export const ENROLMENT_BODY_LIMIT_BYTES = 16 * 1024;
export const ENROLMENT_REPLY_LIMIT_BYTES = MEGABYTE_BYTES;

/** Most connections of machines that ask to be let in, in all and from one host. Machines that wait for the operator are counted apart. */
export const ENROLMENT_CONNECTIONS_LIMIT = { all: 8, ofHost: 2 } as const;

/** Most tries of one host to join or to begin a pairing, and most lines that the log has of what it was refused. */
export const ENROLMENT_TRIES = { burst: 10, perSecond: 10 / 60 } as const;

/** Most questions of a node for the certificate of a key. A node asks once an hour, and more often when a try failed. */
export const KEY_QUESTIONS = { burst: 32, perSecond: 1 } as const;

/** Most hosts whose tries main counts. */
export const ENROLMENT_HOSTS_LIMIT = 1024;

/** Most requests on one such connection, the longest time of a request, and between two of them. */
export const ENROLMENT_REQUESTS_LIMIT = 8;
export const ENROLMENT_REQUEST_MS = 10_000;
export const ENROLMENT_IDLE_MS = 5000;

/** Longest time for which main holds the question of a machine whether its code was typed. Then the machine asks again. */
export const ENROLMENT_WAIT_MS = 25_000;

/** Pause before a waiting machine asks a main again that does not answer, and the most times in a row. */
export const ENROLMENT_RETRY_PAUSE_MS = 2000;
export const ENROLMENT_RETRIES_LIMIT = 30;

/** Largest roster of a cluster with an authority, as it is signed: enough for the longest entries and packs that its other limits allow. */
export const ROSTER_LIMIT_BYTES = 384 * 1024;

/** Time between the words that tell a removed peer why its streams end and the end of its connections. */
export const REMOVAL_GRACE_MS = 200;

/** Longest wait for a stream's first message: hello from its opener, the reply from the other side. */
export const HANDSHAKE_TIMEOUT_MS = 5000;

/** Largest pack piece, and most of them that one stream holds for a slow reader. */
export const PACK_PIECE_BYTES = 256 * 1024;
export const PACK_PIECES_HELD_LIMIT = 4;

/** Most replies of a stream that wait for their reader before the next one is made. */
export const REPLIES_HELD_LIMIT = 16;

/** Longest time without a message from a peer that owes some, before the call is given up. */
export const PACK_PIECE_IDLE_LIMIT_MS = 15_000;

/** Most daemons that a worker asks for missing experts. */
export const PACK_SOURCES_LIMIT = 64;

/** Longest time that a client may leave the replies to its call unread. Then the call is given up, and its resources are freed. */
export const SLOW_READER_LIMIT_MS = 60_000;

/** Most streams and calls that one connection may have open: each may hold PLAIN_RECEIVE_LIMIT_BYTES of a message that does not end. */
export const CONCURRENT_STREAMS_LIMIT = 128;

/** Longest time in which a request to a daemon, or a stream's first message, comes whole. */
export const REQUEST_LIMIT_MS = 20_000;

/** Most bytes that requests hold which have not come whole, in all and on one connection; and what each piece of one costs beside its own bytes. */
export const UNFINISHED_REQUESTS_LIMIT_BYTES = {
  all: 128 * MEGABYTE_BYTES,
  ofConnection: 32 * MEGABYTE_BYTES,
} as const;
export const UNFINISHED_PIECE_BYTES = 256;

/** Interval at which a server asks its client for a sign of life, and the longest time for the reply. */
export const CLIENT_CHECK_INTERVAL_MS = 10_000;
export const CLIENT_CHECK_TIMEOUT_MS = 20_000;

/** Interval at which a user's client asks main for a sign of life, and the longest time for the reply, in which main may be busy with other work. */
export const MAIN_CHECK = { keepaliveIntervalMs: 5000, keepaliveTimeoutMs: 20_000 };

/**
 * Messages and bytes that one stream may bring, of a peer that sends no tensors (a shadow; a peer before its hello), and of one that does (main; a worker). Work
 * at full speed stays below: a stream brings one to two messages for each layer of a token (docs/security.md has the figures).
 */
export const ARRIVALS_OF_PLAIN_PEER = {
  messages: { burst: 40_000, perSecond: 10_000 },
  bytes: { burst: 64 * MEGABYTE_BYTES, perSecond: 16 * MEGABYTE_BYTES },
} as const satisfies Record<string, Rate>;
export const ARRIVALS_OF_TENSOR_PEER = {
  messages: { burst: 80_000, perSecond: 20_000 },
  bytes: { burst: 8192 * MEGABYTE_BYTES, perSecond: 4096 * MEGABYTE_BYTES },
} as const satisfies Record<string, Rate>;

/**
 * Hellos and joins that one peer may send to a daemon. Peers are told apart by certificate, or by host: there each daemon sends one every half second
 * at most.
 */
export const GREETINGS_OF_PEER: Rate = { burst: 256, perSecond: 64 };
/** Most peers whose greetings are counted. The one that was heard least recently is forgotten. */
export const GREETED_PEERS_LIMIT = 1024;

/** Most streams that a worker or a shadow serves at a time, in all and of one certificate or host, streams without a hello included. A peer has one. */
export const SERVED_STREAMS_LIMIT = 128;
export const SERVED_STREAMS_OF_PEER_LIMIT = 32;

/** Most readers of a pack that a daemon serves at a time, in all and of one certificate or host. Each costs an open file and a few pack pieces. */
export const PACK_READERS_LIMIT = 16;
export const PACK_READERS_OF_PEER_LIMIT = 12;

/** Most announced experts without a slot that a worker keeps of main, and as many of its shadows. The oldest of the same sender are dropped. */
export const QUEUED_PREDICTIONS_LIMIT = 1024;
