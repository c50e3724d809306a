import type {
  AlignRows,
  AlignToken,
  BeginSequence,
  DraftToken,
  Execute,
  ExecuteResult,
  Placement,
  Prediction,
  Release,
} from '../../../shared/rpc/messages.js';
import type { PeerMessage } from '../../../shared/rpc/stream-pace.js';
import type { Recorded, RecordedMessage } from './recorder.js';

/** A message about one sequence, or what main ran of it, in the order in which things happened. */
export type SequenceEvent =
  | { kind: 'pass'; position: number; tokenIds: readonly number[] }
  | { kind: 'choice'; position: number; layer: number; experts: readonly number[][] }
  /** main -> worker. */
  | { kind: 'execute'; worker: string; execute: Execute }
  | { kind: 'result'; worker: string; result: ExecuteResult }
  | { kind: 'release'; worker: string; release: Release }
  | { kind: 'announced'; worker: string; prediction: Prediction }
  /** shadow -> worker. */
  | { kind: 'predicted'; shadow: string; worker: string; prediction: Prediction }
  /** shadow -> main, as it is sent and as it arrives. */
  | { kind: 'predictionSent' | 'predictionArrived'; shadow: string; prediction: Prediction }
  | { kind: 'draftArrived'; draft: DraftToken }
  /** main -> shadow. */
  | { kind: 'begin'; shadow: string; begin: BeginSequence }
  | { kind: 'token' | 'tokenArrived'; shadow: string; token: AlignToken }
  | { kind: 'rows'; rows: AlignRows }
  | { kind: 'end'; to: string };

/** A pass that main ran: its first position, its tokens, and what its router chose in each layer. */
export interface RanPass {
  position: number;
  tokenIds: readonly number[];
  /** By layer: each row's experts, by rank. */
  choices: readonly (readonly number[][])[];
}

/** Everything that was said of one sequence. */
export interface SequenceAccount {
  sequence: number;
  events: readonly SequenceEvent[];
  passes: readonly RanPass[];
  /** Under which all of it happened; null: there were several, or none. */
  placement: Placement | null;
  /** Somebody answered with an error. */
  troubled: boolean;
}

/** What main said, by sequence in the order of their creation. `main`: its host. `placement`: that held when the record began. */
export function accountsOf(events: readonly Recorded[], main: string, placement: Placement | null): SequenceAccount[] {
  const bySequence = new Map<number, SequenceEvent[]>();
  const epochs = new Map<number, Set<number>>();
  const placements = new Map<number, Placement>(placement === null ? [] : [[placement.epoch, placement]]);
  const requests = new Map<string, number>();
  let troubled = false;
  const created = createdSequences(events, main);
  const add = (sequence: number, event: SequenceEvent, epoch: number | null = null): void => {
    bySequence.set(sequence, [...(bySequence.get(sequence) ?? []), event]);
    if (epoch !== null) epochs.set(sequence, (epochs.get(sequence) ?? new Set()).add(epoch));
  };
  for (const event of events) {
    if (event.kind !== 'message') {
      const sequence = created[event.sequence - (firstCreated(events) ?? 0)];
      if (sequence !== undefined) add(sequence, ofDevice(event));
      continue;
    }
    if (event.message.kind === 'placement') placements.set(event.message.placement.epoch, event.message.placement);
    if (event.message.kind === 'error') troubled = true;
    const said = ofMessage(event, main, requests);
    if (said !== null) add(said.sequence, said.event, said.epoch);
  }
  return created.map((sequence) => {
    const own = bySequence.get(sequence) ?? [];
    const [epoch, ...others] = epochs.get(sequence) ?? [];
    const only = epoch === undefined || others.length > 0 ? null : (placements.get(epoch) ?? null);
    return { sequence, events: own, passes: passesOf(own), placement: only, troubled };
  });
}

/** Ids rise in the order of creation. */
function createdSequences(events: readonly Recorded[], main: string): number[] {
  const ids = new Set<number>();
  for (const event of events) {
    if (event.kind !== 'message' || event.way !== 'sent' || event.from !== main) continue;
    const { message } = event;
    if (message.kind === 'execute') ids.add(message.execute.pass.sequence);
    else if (message.kind === 'end') ids.add(message.end.sequence);
  }
  return [...ids].sort((left, right) => left - right);
}

function firstCreated(events: readonly Recorded[]): number | null {
  let first: number | null = null;
  for (const event of events) if (event.kind === 'pass') first = Math.min(first ?? Infinity, event.sequence);
  return first;
}

function ofDevice(event: Exclude<Recorded, RecordedMessage>): SequenceEvent {
  if (event.kind === 'choice') {
    const { position, layer, experts } = event;
    return { kind: 'choice', position, layer, experts };
  }
  return { kind: 'pass', position: event.positions[0] ?? 0, tokenIds: event.tokenIds };
}

interface Said {
  sequence: number;
  epoch: number | null;
  event: SequenceEvent;
}

function ofMessage(event: RecordedMessage, main: string, requests: Map<string, number>): Said | null {
  if (event.from === main && event.way === 'sent') return fromMain(event, requests);
  if (event.to === main && event.way === 'arrived') return toMain(event, requests);
  return amongPeers(event, main);
}

function fromMain({ to, message }: RecordedMessage, requests: Map<string, number>): Said | null {
  if (message.kind === 'execute') {
    const { execute } = message;
    const { sequence } = execute.pass;
    requests.set(`${to} ${execute.requestId}`, sequence);
    return { sequence, epoch: execute.epoch, event: { kind: 'execute', worker: to, execute } };
  }
  if (message.kind === 'release') {
    const { release } = message;
    return { sequence: release.pass.sequence, epoch: release.epoch, event: { kind: 'release', worker: to, release } };
  }
  if (message.kind === 'prediction') {
    const { prediction } = message;
    const { sequence } = prediction.pass;
    return { sequence, epoch: prediction.epoch, event: { kind: 'announced', worker: to, prediction } };
  }
  if (message.kind === 'end') return { ...message.end, epoch: null, event: { kind: 'end', to } };
  return toShadow(to, message);
}

function toShadow(shadow: string, message: PeerMessage): Said | null {
  if (message.kind === 'begin') return { ...message.begin, event: { kind: 'begin', shadow, begin: message.begin } };
  if (message.kind === 'token') return { ...message.token, event: { kind: 'token', shadow, token: message.token } };
  if (message.kind === 'cacheRows') return { ...message.cacheRows, event: { kind: 'rows', rows: message.cacheRows } };
  return null;
}

function toMain({ from, message }: RecordedMessage, requests: Map<string, number>): Said | null {
  if (message.kind === 'result') {
    const sequence = requests.get(`${from} ${message.result.requestId}`);
    if (sequence === undefined) return null;
    return { sequence, epoch: null, event: { kind: 'result', worker: from, result: message.result } };
  }
  if (message.kind === 'prediction') {
    const { prediction } = message;
    const { sequence } = prediction.pass;
    return { sequence, epoch: prediction.epoch, event: { kind: 'predictionArrived', shadow: from, prediction } };
  }
  if (message.kind !== 'draft') return null;
  return { sequence: message.draft.sequence, epoch: null, event: { kind: 'draftArrived', draft: message.draft } };
}

function amongPeers({ way, from, to, message }: RecordedMessage, main: string): Said | null {
  if (message.kind === 'prediction' && way === 'sent') {
    const { prediction } = message;
    const { sequence } = prediction.pass;
    if (to === main) return { sequence, epoch: null, event: { kind: 'predictionSent', shadow: from, prediction } };
    return { sequence, epoch: null, event: { kind: 'predicted', shadow: from, worker: to, prediction } };
  }
  if (message.kind !== 'token' || way !== 'arrived') return null;
  return {
    sequence: message.token.sequence,
    epoch: null,
    event: { kind: 'tokenArrived', shadow: to, token: message.token },
  };
}

function passesOf(events: readonly SequenceEvent[]): RanPass[] {
  const passes: (RanPass & { choices: (readonly number[][])[] })[] = [];
  for (const event of events) {
    if (event.kind === 'pass') passes.push({ position: event.position, tokenIds: event.tokenIds, choices: [] });
    else if (event.kind === 'choice') passes.at(-1)?.choices.push(event.experts);
  }
  return passes;
}
