/** Every message of the wire as bytes and back: proto/odmoe/v1 loaded once, decoded messages validated. */
import { loadSync, type ServiceDefinition } from '@grpc/proto-loader';
import { join } from 'node:path';
import { packageRoot } from '../base/files/package-root.js';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import { validateGenerateRequest } from './generate-validation.js';
import {
  completeNodeStatus,
  validateCounts,
  validateIdentity,
  validateRefusal,
  validateShadowReply,
  validateShadowRequest,
  validateWorkerReply,
  validateWorkerRequest,
} from './message-validation.js';
import type {
  GenerateReply,
  GenerateRequest,
  JoinReply,
  NodeIdentity,
  PackDescription,
  PackPiece,
  ReadManifestRequest,
  ReadPackRequest,
  ShadowReply,
  ShadowRequest,
  StatusReply,
  CountsReply,
  WorkerReply,
  WorkerRequest,
} from './messages.js';
import { validatePackDescription, validatePackPiece, validateReadPackRequest } from './pack-validation.js';
import { type CheckOptions, checkWire, PEER_CHECK } from './wire-check.js';
import { ASKED_MESSAGES_LIMIT, bytesLimitOf } from './wire-limits.js';
import { outlineOf } from './wire-outline.js';
import { decodeExecuteRequest, decodeResultReply, encodeExecuteRequest, encodeResultReply } from './tensor-messages.js';

/** `decode` throws OdmoeError: PROTOCOL_VIOLATION, or REQUEST_INVALID for what a user asked. */
export interface MessageCodec<T> {
  encode(message: T): Buffer;
  decode(bytes: Buffer): T;
}

/** One method of a service: where it is and what it carries. */
export interface RpcMethod<Request, Reply> {
  readonly path: string;
  readonly request: MessageCodec<Request>;
  readonly reply: MessageCodec<Reply>;
}

const PROTO_FILES = ['node', 'placement', 'worker', 'shadow', 'inference', 'pack'].map(
  (name) => `odmoe/v1/${name}.proto`,
);

const definitions = loadSync(PROTO_FILES, {
  includeDirs: [join(packageRoot(), 'proto')],
  keepCase: false,
  longs: Number,
  enums: String,
  defaults: true,
  arrays: true,
  oneofs: true,
});

const serveWorker = methodOf('odmoe.v1.Worker', 'Serve');
const serveShadow = methodOf('odmoe.v1.Shadow', 'Serve');
const identify = methodOf('odmoe.v1.Node', 'Identify');
const counts = methodOf('odmoe.v1.Node', 'Counts');
const joinCluster = methodOf('odmoe.v1.Cluster', 'Join');
const status = methodOf('odmoe.v1.Cluster', 'Status');
const generate = methodOf('odmoe.v1.Inference', 'Generate');
const describePack = methodOf('odmoe.v1.Pack', 'Describe');
const readManifest = methodOf('odmoe.v1.Pack', 'Manifest');
const readPack = methodOf('odmoe.v1.Pack', 'Read');

const workerRequestCodec = requestCodec<WorkerRequest>(serveWorker, validateWorkerRequest, (bytes) => {
  const execute = decodeExecuteRequest(bytes);
  return execute === null ? null : { kind: 'execute', execute };
});
const workerReplyCodec = replyCodec<WorkerReply>(serveWorker, validateWorkerReply, (bytes) => {
  const result = decodeResultReply(bytes);
  return result === null ? null : { kind: 'result', result };
});

export const WORKER_SERVE: RpcMethod<WorkerRequest, WorkerReply> = {
  path: serveWorker.path,
  request: {
    encode: (message) =>
      message.kind === 'execute' ? encodeExecuteRequest(message.execute) : workerRequestCodec.encode(message),
    decode: (bytes) => workerRequestCodec.decode(bytes),
  },
  reply: {
    encode: (message) =>
      message.kind === 'result' ? encodeResultReply(message.result) : workerReplyCodec.encode(message),
    decode: (bytes) => workerReplyCodec.decode(bytes),
  },
};

export const SHADOW_SERVE: RpcMethod<ShadowRequest, ShadowReply> = {
  path: serveShadow.path,
  request: requestCodec(serveShadow, validateShadowRequest),
  reply: replyCodec(serveShadow, validateShadowReply),
};

export const NODE_IDENTIFY: RpcMethod<Record<string, never>, NodeIdentity> = {
  path: identify.path,
  request: requestCodec(identify, unchanged),
  reply: replyCodec(identify, validateIdentity),
};

export const NODE_COUNTS: RpcMethod<Record<string, never>, CountsReply> = {
  path: counts.path,
  request: requestCodec(counts, unchanged),
  reply: replyCodec(counts, validateCounts),
};

export const CLUSTER_JOIN: RpcMethod<{ identity: NodeIdentity }, JoinReply> = {
  path: joinCluster.path,
  request: requestCodec(joinCluster, (message: { identity: NodeIdentity }) => {
    validateIdentity(message.identity);
    return message;
  }),
  reply: replyCodec(joinCluster, validateJoinReply),
};

export const CLUSTER_STATUS: RpcMethod<Record<string, never>, StatusReply> = {
  path: status.path,
  request: requestCodec(status, unchanged),
  reply: replyCodec(status, (reply: StatusReply) => {
    reply.nodes.forEach(completeNodeStatus);
    return reply;
  }),
};

export const INFERENCE_GENERATE: RpcMethod<GenerateRequest, GenerateReply> = {
  path: generate.path,
  request: generateRequestCodec(),
  reply: replyCodec(generate, (reply: GenerateReply) => {
    if (reply.kind === undefined) throw new OdmoeError('PROTOCOL_VIOLATION', 'a reply to Generate holds nothing');
    if (reply.kind === 'finished') reply.finished.nodes.forEach(completeNodeStatus);
    return reply;
  }),
};

export const PACK_DESCRIBE: RpcMethod<Record<string, never>, PackDescription> = {
  path: describePack.path,
  request: requestCodec(describePack, unchanged),
  reply: replyCodec(describePack, validatePackDescription),
};

export const PACK_MANIFEST: RpcMethod<ReadManifestRequest, PackPiece> = {
  path: readManifest.path,
  request: requestCodec(readManifest, unchanged<ReadManifestRequest>),
  reply: replyCodec(readManifest, validatePackPiece),
};

export const PACK_READ: RpcMethod<ReadPackRequest, PackPiece> = {
  path: readPack.path,
  request: requestCodec(readPack, validateReadPackRequest),
  reply: replyCodec(readPack, validatePackPiece),
};

function validateJoinReply(reply: JoinReply): JoinReply {
  if (reply.kind === 'welcome') validateIdentity(reply.welcome.identity);
  else if (reply.kind === 'refusal') validateRefusal(reply.refusal);
  else throw new OdmoeError('PROTOCOL_VIOLATION', 'a reply to Join is neither a welcome nor a refusal');
  return reply;
}

function unchanged<T>(message: T): T {
  return message;
}

type Method = ServiceDefinition[string];

/** What a client asks costs more than its decoding. A client that asks for too much hears so before it has sent it. */
function generateRequestCodec(): MessageCodec<GenerateRequest> {
  const check: CheckOptions = { code: 'REQUEST_INVALID', innerMessages: ASKED_MESSAGES_LIMIT };
  const asked = requestCodec<GenerateRequest>(generate, validateGenerateRequest, undefined, check);
  const limit = bytesLimitOf('GenerateRequest');
  return {
    encode: (request) => {
      const bytes = asked.encode(request);
      if (bytes.length <= limit) return bytes;
      throw new OdmoeError(
        'REQUEST_TOO_LARGE',
        `the request has ${bytes.length} bytes; at most ${limit} are taken: send less`,
      );
    },
    decode: (bytes) => asked.decode(bytes),
  };
}

type QuickDecode<T> = (bytes: Buffer) => T | null;

function requestCodec<T>(
  method: Method,
  validate: (message: T) => T,
  quick?: QuickDecode<T>,
  check?: CheckOptions,
): MessageCodec<T> {
  const { requestSerialize: encode, requestDeserialize: decode, requestType } = method;
  return codec(encode, readerOf(decode, requestType.type, quick, check), validate);
}

function replyCodec<T>(method: Method, validate: (message: T) => T, quick?: QuickDecode<T>): MessageCodec<T> {
  const { responseSerialize: encode, responseDeserialize: decode, responseType } = method;
  return codec(encode, readerOf(decode, responseType.type, quick), validate);
}

function codec<T>(
  encode: (message: object) => Buffer,
  read: (bytes: Buffer) => T,
  validate: (message: T) => T,
): MessageCodec<T> {
  return { encode: (message) => encode(message as object), decode: (bytes) => validate(read(bytes)) };
}

/**
 * Bytes are counted before they are decoded. `type`: what proto-loader tells of the message. `quick`: a decoder for those that come most;
 * null: the message is of another form.
 */
function readerOf<T>(
  decode: (bytes: Buffer) => object,
  type: object,
  quick: QuickDecode<T> = () => null,
  check: CheckOptions = PEER_CHECK,
): (bytes: Buffer) => T {
  const outline = outlineOf(definitions, (type as { name: string }).name);
  return (bytes) => {
    checkWire(bytes, outline, check);
    return quick(bytes) ?? (decodeOrExplain(decode, bytes) as T);
  };
}

function decodeOrExplain(decode: (bytes: Buffer) => object, bytes: Buffer): object {
  try {
    return decode(bytes);
  } catch (thrown) {
    const { message } = toOdmoeError(thrown);
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `${bytes.length} bytes came that are no message of odmoe.v1: ${message}`,
    );
  }
}

function methodOf(service: string, method: string): ServiceDefinition[string] {
  const found = (definitions[service] as ServiceDefinition | undefined)?.[method];
  if (found === undefined) throw new OdmoeError('INTERNAL', `proto/odmoe/v1 has no ${service}.${method}`);
  return found;
}
