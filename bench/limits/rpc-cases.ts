/** Hostile messages of clients and false mains over gRPC. */
import {
  HANDSHAKE_TIMEOUT_MS,
  MEGABYTE_BYTES,
  MESSAGE_SIZE_LIMIT_BYTES,
  PLAIN_MESSAGE_LIMIT_BYTES,
  PLAIN_RECEIVE_LIMIT_BYTES,
} from '../../shared/wire/limits.js';
import { MESSAGES_LIMIT } from '../../shared/wire/chat-message-validation.js';
import type { GenerateRequest, NodeIdentity } from '../../shared/wire/messages.js';
import { listsOf, repeatedField, withElements } from './hostile-bytes.js';
import type { CaseAnswer, LimitsCase } from './limits-case.js';
import type { LimitsCluster } from './limits-cluster.js';
import { callRaw, type RawEnd, streamRaw } from './raw-calls.js';
import { METHODS } from '../../shared/transport/methods.js';

/** Bytes of an empty message in a list. */
const ELEMENT_BYTES = 2;
/** Most bytes that grpc-js adds to a message, and a message to its list. */
const AROUND_BYTES = 64;
const PLAIN_ELEMENTS = (PLAIN_MESSAGE_LIMIT_BYTES - AROUND_BYTES) / ELEMENT_BYTES;
const TENSOR_ELEMENTS = (MESSAGE_SIZE_LIMIT_BYTES - AROUND_BYTES) / ELEMENT_BYTES;
/** Number of the field `messages` in GenerateRequest. */
const MESSAGES_FIELD = 2;
const OPEN_MS = HANDSHAKE_TIMEOUT_MS + 3000;
/** CANCELLED: the real main reconnected, and the false one was disconnected. */
const REFUSALS = ['INVALID_ARGUMENT', 'RESOURCE_EXHAUSTED', 'FAILED_PRECONDITION', 'CANCELLED'];

const NOTHING_ASKED: GenerateRequest = {
  text: '',
  messages: [],
  promptTokenIds: [],
  raw: false,
  maxTokens: 1,
  sampling: null,
  stop: [],
  ignoreEos: false,
  logprobs: 0,
};

function generateCase(name: string, about: string, elements: number): LimitsCase {
  return {
    name,
    about,
    target: 'main',
    run: async (cluster, signal) => {
      const bytes = repeatedField(MESSAGES_FIELD, elements);
      return caseAnswer([await callRaw(cluster.addressOf('main'), METHODS.inference.generate.path, bytes, signal)]);
    },
  };
}

function caseAnswer(ends: readonly RawEnd[]): CaseAnswer {
  const names = ends.map(({ status }) => status);
  const counts = [...new Set(names)].map((name) => `${names.filter((one) => one === name).length} x ${name}`);
  const [only] = ends;
  const text = ends.length === 1 && only !== undefined ? `${only.status}: ${only.details}` : counts.join(', ');
  return { text, expected: names.every((name) => REFUSALS.includes(name)), messages: ends.length };
}

/** Sends every list of a peer's messages, one after the other, each over a new stream. */
async function sendLists(
  {
    cluster,
    target,
    message,
    path,
  }: { cluster: LimitsCluster; target: 'worker' | 'shadow'; message: string; path: string },
  hello: Buffer | null,
  elements: number,
  signal: AbortSignal,
): Promise<CaseAnswer> {
  const lists = listsOf(message).map((list) => withElements(list, elements));
  const hostile = [...lists, repeatedField(1, elements)];
  const ends: RawEnd[] = [];
  for (const bytes of hostile) {
    const messages = hello === null ? [bytes] : [hello, bytes];
    ends.push(await streamRaw(cluster.addressOf(target), path, messages, OPEN_MS, signal));
  }
  return caseAnswer(ends);
}

/** A Hello of the daemon's present main: the same id means the same main. */
function helloOf(target: 'worker' | 'shadow', hello: NodeIdentity): Buffer {
  const message = { kind: 'hello', hello } as const;
  return target === 'worker'
    ? METHODS.worker.serve.request.encode(message)
    : METHODS.shadow.serve.request.encode(message);
}

function listCases(target: 'worker' | 'shadow'): LimitsCase[] {
  const message = target === 'worker' ? 'WorkerRequest' : 'ShadowRequest';
  const { path } = target === 'worker' ? METHODS.worker.serve : METHODS.shadow.serve;
  return [
    {
      name: `${target}-lists`,
      about: `to a ${target} that has not heard hello: each list of its messages with ${PLAIN_ELEMENTS} entries`,
      target,
      run: (cluster, signal) => sendLists({ cluster, target, message, path }, null, PLAIN_ELEMENTS, signal),
    },
    {
      name: `${target}-lists-greeted`,
      about: `the same behind a hello of main`,
      target,
      run: async (cluster, signal) => {
        const hello = helloOf(target, await cluster.identityLikeMain({}));
        return sendLists({ cluster, target, message, path }, hello, PLAIN_ELEMENTS, signal);
      },
    },
    {
      name: `${target}-lists-large`,
      about: `the same with ${TENSOR_ELEMENTS} entries, as large as tensors may be`,
      target,
      // Refused messages use memory until the garbage collector runs.
      bounds: { growthBytes: 5 * MESSAGE_SIZE_LIMIT_BYTES },
      run: async (cluster, signal) => {
        const hello = helloOf(target, await cluster.identityLikeMain({}));
        return sendLists({ cluster, target, message, path }, hello, TENSOR_ELEMENTS, signal);
      },
    },
  ];
}

export const RPC_CASES: readonly LimitsCase[] = [
  generateCase(
    'generate-32mib',
    'Generate of 32 MiB of empty messages',
    (32 * MEGABYTE_BYTES - AROUND_BYTES) / ELEMENT_BYTES,
  ),
  generateCase(
    'generate-4mib',
    'Generate of 4 MiB of empty messages, as much as grpc-js takes',
    (PLAIN_RECEIVE_LIMIT_BYTES - AROUND_BYTES) / ELEMENT_BYTES,
  ),
  generateCase('generate-2mib', 'Generate of 2 MiB of empty messages', PLAIN_ELEMENTS),
  {
    name: 'generate-most',
    about: 'Generate of as many messages as may be',
    target: 'main',
    run: async (cluster, signal) => {
      const messages = Array.from({ length: MESSAGES_LIMIT }, () => ({ role: 'user', content: '' }));
      const bytes = METHODS.inference.generate.request.encode({ ...NOTHING_ASKED, messages });
      return caseAnswer([await callRaw(cluster.addressOf('main'), METHODS.inference.generate.path, bytes, signal)]);
    },
  },
  {
    name: 'join-2mib',
    about: 'Cluster.Join with a million copies of the identity',
    target: 'main',
    run: async (cluster, signal) =>
      caseAnswer([
        await callRaw(cluster.addressOf('main'), METHODS.cluster.join.path, repeatedField(1, PLAIN_ELEMENTS), signal),
      ]),
  },
  ...listCases('worker'),
  ...listCases('shadow'),
];
