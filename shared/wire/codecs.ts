/** Codecs of every message of the wire: proto/odmoe/v1 is loaded once, and decoded messages are checked. */
import { loadSync, type ServiceDefinition } from '@grpc/proto-loader';
import { join } from 'node:path';
import { packageRoot } from '../base/files/package-root.js';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import { messageCheckOf } from './message-check.js';
import type { GenerateReply, GenerateRequest, WorkerReply, WorkerRequest } from './messages.js';
import { decodeExecuteRequest, decodeResultReply, encodeExecuteRequest, encodeResultReply } from './tensor-messages.js';
import { type CheckOptions, checkWire, PEER_CHECK } from './wire-check.js';
import { ASKED_MESSAGES_LIMIT, bytesLimitOf } from './wire-limits.js';
import { outlineOf } from './wire-outline.js';

/** `decode` throws OdmoeError: PROTOCOL_VIOLATION, or REQUEST_INVALID for a user's request. */
export interface MessageCodec<T> {
  encode(message: T): Buffer;
  decode(bytes: Buffer): T;
}

/** A stream is open in both directions; a call has one reply; replies are many for one request. */
export type MethodShape = 'stream' | 'call' | 'replies';

/** One method of a service: its path, its shape and its messages. */
export interface RpcMethod<Request, Reply> {
  readonly path: string;
  readonly shape: MethodShape;
  readonly request: MessageCodec<Request>;
  readonly reply: MessageCodec<Reply>;
}

const PROTO_FILES = ['node', 'placement', 'worker', 'shadow', 'inference', 'pack', 'trust'].map(
  (name) => `odmoe/v1/${name}.proto`,
);

/** scripts/generate-messages.mjs makes types for these options. */
const definitions = loadSync(PROTO_FILES, {
  includeDirs: [join(packageRoot(), 'proto')],
  keepCase: false,
  longs: Number,
  enums: String,
  defaults: true,
  arrays: true,
  oneofs: true,
});

/** Execute and its result, which every layer sends, have special encoders and decoders; all other messages of the stream have the general ones. */
export function workerServe(): RpcMethod<WorkerRequest, WorkerReply> {
  const { path, shape, request, reply } = rpcMethod<WorkerRequest, WorkerReply>('Worker', 'Serve', {
    decodeRequest: (bytes) => {
      const execute = decodeExecuteRequest(bytes);
      return execute === null ? null : { kind: 'execute', execute };
    },
    decodeReply: (bytes) => {
      const result = decodeResultReply(bytes);
      return result === null ? null : { kind: 'result', result };
    },
  });
  return {
    path,
    shape,
    request: {
      encode: (message) =>
        message.kind === 'execute' ? encodeExecuteRequest(message.execute) : request.encode(message),
      decode: (bytes) => request.decode(bytes),
    },
    reply: {
      encode: (message) => (message.kind === 'result' ? encodeResultReply(message.result) : reply.encode(message)),
      decode: (bytes) => reply.decode(bytes),
    },
  };
}

/** A client's request costs more than its decoding. So a request over the limits is refused while it is still bytes. */
export function inferenceGenerate(): RpcMethod<GenerateRequest, GenerateReply> {
  const check: CheckOptions = { code: 'REQUEST_INVALID', innerMessages: ASKED_MESSAGES_LIMIT };
  const { path, shape, request, reply } = rpcMethod<GenerateRequest, GenerateReply>('Inference', 'Generate', { check });
  const limit = bytesLimitOf('GenerateRequest');
  return {
    path,
    shape,
    request: {
      encode: (message) => {
        const bytes = request.encode(message);
        if (bytes.length <= limit) return bytes;
        throw new OdmoeError(
          'REQUEST_TOO_LARGE',
          `the request has ${bytes.length} bytes; at most ${limit} are taken: send less`,
        );
      },
      decode: (bytes) => request.decode(bytes),
    },
    reply,
  };
}

/** Quick decoders for the most frequent messages. They return null if the message has another form. */
interface MethodOptions<Request, Reply> {
  decodeRequest?: (bytes: Buffer) => Request | null;
  decodeReply?: (bytes: Buffer) => Reply | null;
  /** Limits of requests. */
  check?: CheckOptions;
}

export function rpcMethod<Request extends object, Reply extends object>(
  service: string,
  name: string,
  { decodeRequest, decodeReply, check = PEER_CHECK }: MethodOptions<Request, Reply> = {},
): RpcMethod<Request, Reply> {
  const method = (definitions[`odmoe.v1.${service}`] as ServiceDefinition | undefined)?.[name];
  if (method === undefined) throw new OdmoeError('INTERNAL', `proto/odmoe/v1 has no ${service}.${name}`);
  const { requestType, requestSerialize, requestDeserialize, requestStream } = method;
  const { responseType, responseSerialize, responseDeserialize, responseStream } = method;
  const request = { type: requestType.type, encode: requestSerialize, decode: requestDeserialize };
  const reply = { type: responseType.type, encode: responseSerialize, decode: responseDeserialize };
  return {
    path: method.path,
    shape: requestStream ? 'stream' : responseStream ? 'replies' : 'call',
    request: codecOf<Request>(request, decodeRequest, check),
    reply: codecOf<Reply>(reply, decodeReply, PEER_CHECK),
  };
}

interface GeneralCodec {
  /** Description of the message by proto-loader. */
  type: object;
  encode(message: object): Buffer;
  decode(bytes: Buffer): object;
}

/** The limits are checked on the bytes before decoding. The values are checked before any other code sees them. */
function codecOf<T extends object>(
  general: GeneralCodec,
  quick: (bytes: Buffer) => T | null = () => null,
  options: CheckOptions,
): MessageCodec<T> {
  const { name } = general.type as { name: string };
  const outline = outlineOf(definitions, name);
  const checkMessage = messageCheckOf(definitions, name, options.code);
  return {
    encode: (message) => general.encode(message),
    decode: (bytes) => {
      checkWire(bytes, outline, options);
      const message = quick(bytes) ?? decodeOrExplain(general, bytes);
      checkMessage(message);
      return message as T;
    },
  };
}

function decodeOrExplain(general: GeneralCodec, bytes: Buffer): object {
  try {
    return general.decode(bytes);
  } catch (thrown) {
    const { message } = toOdmoeError(thrown);
    throw new OdmoeError(
      'PROTOCOL_VIOLATION',
      `${bytes.length} bytes came that are no message of odmoe.v1: ${message}`,
    );
  }
}
