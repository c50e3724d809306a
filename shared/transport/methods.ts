import { assertInvariant } from '../base/errors/assert-invariant.js';
import type { ErrorCode } from '../base/errors/registry.js';
import { inferenceGenerate, type MethodShape, type RpcMethod, rpcMethod, workerServe } from '../wire/codecs.js';
import {
  FLOW_CONTROL_WINDOW_BYTES,
  PACK_PIECES_HELD_LIMIT,
  PACK_WINDOW_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
  REPLIES_HELD_LIMIT,
  REPLY_SIZE_LIMIT_BYTES,
} from '../wire/limits.js';
import type {
  AcceptReply,
  AcceptRequest,
  CountsReply,
  CreateTokenReply,
  CreateTokenRequest,
  DrainReply,
  DrainRequest,
  JoinReply,
  JoinRequest,
  ListNodesReply,
  ListTokensReply,
  NodeIdentity,
  PackDescription,
  PackPiece,
  ReadManifestRequest,
  ReadPackRequest,
  RemoveNodeReply,
  RemoveNodeRequest,
  RenewReply,
  RenewRequest,
  RevokeTokenRequest,
  ShadowReply,
  ShadowRequest,
  StatusReply,
} from '../wire/messages.js';
import type { PeerMessage } from './stream-pace.js';
import type { PeerRole, ServedBy } from './trust/peer-role.js';

/** The rules by which nodes call and serve a method. */
export interface MethodRules {
  /** Roles that may call the method. They count in a cluster with an authority: elsewhere nobody has a certificate. */
  readonly callers: ReadonlySet<PeerRole>;
  /** The caller's error code if the connection fails. */
  readonly lostCode: ErrorCode;
  /** The daemons that serve the method. In a cluster with an authority the peer's certificate must say so. */
  readonly servedBy: ServedBy;
  /** Bytes that may be on the way to the caller before the server must wait. */
  readonly windowBytes: number;
  /** Largest reply that the caller receives, of a peer that sends no tensors. */
  readonly receiveLimitBytes: number;
  /** Errors for which a server logs no warning. */
  readonly everyday: ReadonlySet<ErrorCode>;
}

/** Both ends send messages at any time. */
export interface StreamMethod<Request extends PeerMessage, Reply extends PeerMessage>
  extends RpcMethod<Request, Reply>, MethodRules {
  readonly shape: 'stream';
}

/** One request, one reply. */
export interface CallMethod<Request, Reply> extends RpcMethod<Request, Reply>, MethodRules {
  readonly shape: 'call';
}

/** One request, many replies. */
export interface RepliesMethod<Request, Reply> extends RpcMethod<Request, Reply>, MethodRules {
  readonly shape: 'replies';
  /** Most replies that wait at the server before it makes the next one. */
  readonly heldByServer: number;
  /** Most replies that wait at a slow caller before the server must wait. */
  readonly heldByCaller: number;
}

type Nothing = Record<string, never>;

type RulesForAll = Omit<MethodRules, 'callers'>;

const PLAIN = { windowBytes: FLOW_CONTROL_WINDOW_BYTES, everyday: new Set<ErrorCode>() };
const OF_ANY = {
  ...PLAIN,
  servedBy: 'any node',
  lostCode: 'NO_MAIN',
  receiveLimitBytes: REPLY_SIZE_LIMIT_BYTES,
} as const;
const OF_MAIN = { ...OF_ANY, servedBy: 'main' } as const;
/** Replies with tensors are received from a peer that is known (PeerStream.takeTensors). */
const OF_WORKER = {
  ...PLAIN,
  servedBy: 'worker',
  lostCode: 'WORKER_LOST',
  receiveLimitBytes: PLAIN_RECEIVE_LIMIT_BYTES,
} as const;
const OF_SHADOW = {
  ...PLAIN,
  servedBy: 'shadow',
  lostCode: 'SHADOW_LOST',
  receiveLimitBytes: PLAIN_RECEIVE_LIMIT_BYTES,
} as const;
/** Any daemon may hold a pack. A reader that gets QUEUE_FULL or PACK_INCOMPLETE from one asks another. */
const OF_PACK = {
  lostCode: 'WORKER_LOST',
  servedBy: 'any node',
  windowBytes: PACK_WINDOW_BYTES,
  receiveLimitBytes: PLAIN_RECEIVE_LIMIT_BYTES,
  everyday: new Set<ErrorCode>(['QUEUE_FULL', 'PACK_INCOMPLETE']),
  heldByServer: PACK_PIECES_HELD_LIMIT,
  heldByCaller: PACK_PIECES_HELD_LIMIT,
} as const;
const ANSWER = { ...OF_MAIN, heldByServer: REPLIES_HELD_LIMIT, heldByCaller: 256 } as const;

const EVERY_ROLE = ['main', 'shadow', 'worker', 'operator'] as const;
const EVERY_NODE = ['main', 'shadow', 'worker'] as const;
/** Main's own command line reaches main as an operator; main itself is listed because its certificate may do what an operator's may. */
const OPERATORS = ['main', 'operator'] as const;

/** Every method of proto/odmoe/v1, by its service, with the roles that may call it. All transports and servers follow this table. */
export const METHODS = {
  node: {
    identify: call(rpcMethod<Nothing, NodeIdentity>('Node', 'Identify'), EVERY_ROLE, OF_ANY),
    counts: call(rpcMethod<Nothing, CountsReply>('Node', 'Counts'), OPERATORS, OF_ANY),
  },
  worker: { serve: stream(workerServe(), ['main', 'shadow'], OF_WORKER) },
  shadow: { serve: stream(rpcMethod<ShadowRequest, ShadowReply>('Shadow', 'Serve'), ['main'], OF_SHADOW) },
  cluster: {
    join: call(rpcMethod<JoinRequest, JoinReply>('Cluster', 'Join'), ['shadow', 'worker'], OF_MAIN),
    status: call(rpcMethod<Nothing, StatusReply>('Cluster', 'Status'), EVERY_ROLE, OF_MAIN),
  },
  keys: {
    renew: call(rpcMethod<RenewRequest, RenewReply>('Keys', 'Renew'), ['shadow', 'worker', 'operator'], OF_MAIN),
  },
  operator: {
    accept: call(rpcMethod<AcceptRequest, AcceptReply>('Operator', 'Accept'), OPERATORS, OF_MAIN),
    createToken: call(rpcMethod<CreateTokenRequest, CreateTokenReply>('Operator', 'CreateToken'), OPERATORS, OF_MAIN),
    listTokens: call(rpcMethod<Nothing, ListTokensReply>('Operator', 'ListTokens'), OPERATORS, OF_MAIN),
    revokeToken: call(rpcMethod<RevokeTokenRequest, Nothing>('Operator', 'RevokeToken'), OPERATORS, OF_MAIN),
    listNodes: call(rpcMethod<Nothing, ListNodesReply>('Operator', 'ListNodes'), OPERATORS, OF_MAIN),
    removeNode: call(rpcMethod<RemoveNodeRequest, RemoveNodeReply>('Operator', 'RemoveNode'), OPERATORS, OF_MAIN),
    drain: call(rpcMethod<DrainRequest, DrainReply>('Operator', 'Drain'), OPERATORS, OF_MAIN),
  },
  inference: { generate: replies(inferenceGenerate(), OPERATORS, ANSWER) },
  pack: {
    describe: call(rpcMethod<Nothing, PackDescription>('Pack', 'Describe'), EVERY_NODE, OF_PACK),
    manifest: replies(rpcMethod<ReadManifestRequest, PackPiece>('Pack', 'Manifest'), EVERY_NODE, OF_PACK),
    read: replies(rpcMethod<ReadPackRequest, PackPiece>('Pack', 'Read'), EVERY_NODE, OF_PACK),
  },
};

function stream<Request extends PeerMessage, Reply extends PeerMessage>(
  method: RpcMethod<Request, Reply>,
  callers: readonly PeerRole[],
  rules: RulesForAll,
): StreamMethod<Request, Reply> {
  return { ...method, ...rules, callers: new Set(callers), shape: shapeOf(method, 'stream') };
}

function call<Request, Reply>(
  method: RpcMethod<Request, Reply>,
  callers: readonly PeerRole[],
  rules: RulesForAll,
): CallMethod<Request, Reply> {
  return { ...method, ...rules, callers: new Set(callers), shape: shapeOf(method, 'call') };
}

function replies<Request, Reply>(
  method: RpcMethod<Request, Reply>,
  callers: readonly PeerRole[],
  rules: Omit<RepliesMethod<Request, Reply>, keyof RpcMethod<Request, Reply> | 'callers'>,
): RepliesMethod<Request, Reply> {
  return { ...method, ...rules, callers: new Set(callers), shape: shapeOf(method, 'replies') };
}

function shapeOf<Shape extends MethodShape>(
  { path, shape }: { path: string; shape: MethodShape },
  wanted: Shape,
): Shape {
  assertInvariant(shape === wanted, `${path} is a ${wanted} in the table of methods, as in proto/odmoe/v1`);
  return wanted;
}
