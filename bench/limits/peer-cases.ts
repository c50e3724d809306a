/** Hostile acts of false workers, shadows and mains. */
import { setTimeout as pause } from 'node:timers/promises';
import { PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import { HANDSHAKE_TIMEOUT_MS, MESSAGE_SIZE_LIMIT_BYTES, PLAIN_MESSAGE_LIMIT_BYTES } from '../../shared/wire/limits.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { emptyNodeStatus } from '../../shared/wire/node-status.js';
import { FalsePeer, type FalseStream, shadowReply, workerReply } from './false-peer.js';
import { listsOf, repeatedField, withElements } from './hostile-bytes.js';
import type { CaseAnswer, LimitsCase } from './limits-case.js';
import type { LimitsCluster } from './limits-cluster.js';
import { streamRaw } from './raw-calls.js';
import { askOnce } from './small-request.js';
import { METHODS } from '../../shared/transport/methods.js';

type FalseRole = 'worker' | 'shadow';

const PLAIN_ELEMENTS = PLAIN_MESSAGE_LIMIT_BYTES / 2 - 32;
const TENSOR_ELEMENTS = MESSAGE_SIZE_LIMIT_BYTES / 2 - 32;
const POISONED_EPOCH = Number.MAX_SAFE_INTEGER - 1;
const END_LIMIT_MS = 15_000;
const ERRORS_FOR_MS = 5000;
const ERRORS_AT_ONCE = 20;
const OPEN_MS = HANDSHAKE_TIMEOUT_MS + 3000;
/** Main places new workers within this time. */
const PLACED_WITHIN_MS = 3000;

const welcome = (role: FalseRole, identity: NodeIdentity, highestEpoch = 0): Buffer => {
  const reply = { kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch } } as const;
  return role === 'worker' ? workerReply(reply) : shadowReply(reply);
};

/** Sends each list of a peer's replies to main, each by a new peer, before or after its welcome. */
async function replyLists(
  cluster: LimitsCluster,
  role: FalseRole,
  elements: number,
  isWelcome: boolean,
): Promise<CaseAnswer> {
  const lists = listsOf(role === 'worker' ? 'WorkerReply' : 'ShadowReply').map((list) => withElements(list, elements));
  const hostile = [...lists, repeatedField(1, elements)];
  let ended = 0;
  for (const [number, bytes] of hostile.entries()) {
    let isSent = false;
    const peer = await FalsePeer.join(cluster, role, `false-${number}`, {
      opened: (stream, identity) => {
        // Main connects again, but only one such message of each peer is measured.
        if (isSent) return;
        isSent = true;
        if (isWelcome) stream.write(welcome(role, identity));
        stream.write(bytes);
      },
    });
    if (await peer.streamsEnd(1, END_LIMIT_MS)) ended += 1;
    peer.stop();
  }
  return {
    text: `${ended} of ${hostile.length} streams ended`,
    expected: ended === hostile.length,
    messages: hostile.length,
  };
}

function replyCases(role: FalseRole): LimitsCase[] {
  const about = `to main, by a false ${role}: each list of its replies with ${PLAIN_ELEMENTS} entries`;
  return [
    {
      name: `false-${role}-lists`,
      about: `${about}, before its welcome`,
      target: 'main',
      run: (cluster) => replyLists(cluster, role, PLAIN_ELEMENTS, false),
    },
    {
      name: `false-${role}-lists-welcome`,
      about: `${about}, behind its welcome`,
      target: 'main',
      run: (cluster) => replyLists(cluster, role, PLAIN_ELEMENTS, true),
    },
    {
      name: `false-${role}-lists-large`,
      about: `to main, by a false ${role}: the same with ${TENSOR_ELEMENTS} entries, before its welcome`,
      target: 'main',
      run: (cluster) => replyLists(cluster, role, TENSOR_ELEMENTS, false),
    },
  ];
}

/** A false worker whose welcome names an epoch near the largest possible number. */
async function poisonedWelcome(cluster: LimitsCluster): Promise<CaseAnswer> {
  const peer = await FalsePeer.join(cluster, 'worker', 'false', {
    opened: (stream, identity) => stream.write(welcome('worker', identity, POISONED_EPOCH)),
  });
  await pause(PLACED_WITHIN_MS);
  peer.stop();
  return epochStays(cluster, 'welcome');
}

/** A false main of the same name that places the worker in an epoch near the largest possible number. */
async function poisonedPlacement(cluster: LimitsCluster, signal: AbortSignal): Promise<CaseAnswer> {
  const { placement } = await cluster.status();
  if (placement === null) return { text: 'no placement', expected: false };
  const hello = await cluster.identityLikeMain({});
  const messages = [
    METHODS.worker.serve.request.encode({ kind: 'hello', hello }),
    METHODS.worker.serve.request.encode({ kind: 'placement', placement: { ...placement, epoch: POISONED_EPOCH } }),
  ];
  const end = await streamRaw(cluster.addressOf('worker'), METHODS.worker.serve.path, messages, OPEN_MS, signal);
  await pause(PLACED_WITHIN_MS);
  return epochStays(cluster, end.status);
}

async function epochStays(cluster: LimitsCluster, what: string): Promise<CaseAnswer> {
  const epoch = (await cluster.status()).placement?.epoch ?? Number.POSITIVE_INFINITY;
  const answers = await askOnce(cluster.url);
  const text = `${what}; epoch ${epoch <= PEER_EPOCH_LIMIT ? 'stays sane' : epoch}, main ${answers ? 'answers' : 'is silent'}`;
  return { text, expected: epoch <= PEER_EPOCH_LIMIT && answers };
}

/** A worker that sends errors without a request as fast as main reads them, and reconnects after each disconnect. */
async function errorsForEver(cluster: LimitsCluster): Promise<CaseAnswer> {
  let sent = 0;
  const error = (requestId: number): Buffer =>
    workerReply({ kind: 'error', error: { code: 'INTERNAL', message: 'x'.repeat(4000), requestId, epoch: 1 } });
  const flood = (stream: FalseStream): void => {
    const timer = setInterval(() => {
      for (let at = 0; at < ERRORS_AT_ONCE && stream.writable; at += 1) {
        stream.write(error((sent += 1)));
      }
    }, 1);
    stream.on('close', () => clearInterval(timer));
  };
  const peer = await FalsePeer.join(cluster, 'worker', 'false', {
    opened: (stream, identity) => {
      stream.write(welcome('worker', identity));
      stream.write(workerReply({ kind: 'status', status: { ...emptyNodeStatus(identity), slots: 1 } }));
      flood(stream);
    },
  });
  await pause(ERRORS_FOR_MS);
  peer.stop();
  return { text: `${sent} errors, ${peer.streams} streams`, expected: true, messages: Math.max(1, sent) };
}

export const PEER_CASES: readonly LimitsCase[] = [
  ...replyCases('worker'),
  ...replyCases('shadow'),
  {
    name: 'poisoned-welcome',
    about: 'a worker whose welcome has seen epoch 2^53 - 2',
    target: 'main',
    run: (cluster) => poisonedWelcome(cluster),
  },
  {
    name: 'poisoned-placement',
    about: 'a placement of epoch 2^53 - 2, to a worker by a false main of the same name',
    target: 'worker',
    run: (cluster, signal) => poisonedPlacement(cluster, signal),
  },
  {
    name: 'false-worker-errors',
    about: 'a worker that sends errors that answer nothing, 5 s long',
    target: 'main',
    run: (cluster) => errorsForEver(cluster),
  },
];
