import type {
  AlignRows,
  AlignToken,
  Announce,
  BeginSequence,
  DraftToken,
  Execute,
  ExecuteResult,
  PassLayer,
  Placement,
  Predict,
  Release,
  Restart,
} from '../../../shared/wire/messages.js';
import type { PeerMessage } from '../../../shared/transport/stream-pace.js';
import { ranPasses, type JointPass, type CountedMain } from './ran-passes.js';
import type { Recorded, RecordedMessage } from './recorder.js';

/** A message about one sequence, or a pass or choice of main for it, in the order of events. */
export type SequenceEvent =
  | { kind: 'pass'; position: number; tokenIds: readonly number[]; of: JointPass }
  | { kind: 'choice'; position: number; layer: number; experts: readonly (readonly number[])[] }
  /** From main to a worker. */
  | { kind: 'execute'; worker: string; execute: Execute }
  | { kind: 'result'; worker: string; result: ExecuteResult }
  | { kind: 'release'; worker: string; release: Release }
  | { kind: 'announced'; worker: string; announce: Announce }
  /** From shadow to a worker. */
  | { kind: 'predicted'; shadow: string; worker: string; prediction: Predict }
  /** From shadow to main, when sent and when arrived. */
  | { kind: 'predictionSent' | 'predictionArrived'; shadow: string; prediction: Predict }
  | { kind: 'restartArrived'; restart: Restart }
  | { kind: 'draftArrived'; draft: DraftToken }
  | { kind: 'prefixKept'; positions: number }
  /** From main to shadow. */
  | { kind: 'begin'; shadow: string; begin: BeginSequence }
  | { kind: 'token' | 'tokenArrived'; shadow: string; token: AlignToken }
  | { kind: 'rows'; rows: AlignRows }
  | { kind: 'end'; to: string };

/** The rows of one sequence in a pass that main ran. */
export interface RanPass {
  position: number;
  tokenIds: readonly number[];
  /** By layer: each row's experts, by rank. */
  choices: readonly (readonly (readonly number[])[])[];
  /** The whole pass, which may have rows of other sequences. */
  of: JointPass;
}

/** All messages and passes of one sequence, alone or with others. */
export interface SequenceAccount {
  sequence: number;
  events: readonly SequenceEvent[];
  passes: readonly RanPass[];
  /** The placement of all these events; null: there were several, or none. */
  placement: Placement | null;
  /** A node answered with an error. */
  troubled: boolean;
}

/** The accounts of all sequences, and the passes that main ran. */
export interface Accounts {
  /** In the order of their creation. */
  accounts: SequenceAccount[];
  passes: readonly JointPass[];
  problems: readonly string[];
}

/** `placement`: the valid one when the record began. */
export function accountsOf(events: readonly Recorded[], counted: CountedMain, placement: Placement | null): Accounts {
  const { host: main } = counted;
  const bySequence = new Map<number, SequenceEvent[]>();
  const epochs = new Map<number, Set<number>>();
  const placements = new Map<number, Placement>(placement === null ? [] : [[placement.epoch, placement]]);
  const requests = new Map<string, readonly number[]>();
  let troubled = false;
  const ran = ranPasses(events, counted);
  const ofDevice = deviceEvents(ran.passes);
  const add = (sequence: number, event: SequenceEvent, epoch: number | null = null): void => {
    bySequence.set(sequence, [...(bySequence.get(sequence) ?? []), event]);
    if (epoch !== null) epochs.set(sequence, (epochs.get(sequence) ?? new Set()).add(epoch));
  };
  for (const [index, event] of events.entries()) {
    for (const { sequence, event: own } of ofDevice.get(index) ?? []) add(sequence, own);
    if (event.kind !== 'message') continue;
    if (event.message.kind === 'placement') placements.set(event.message.placement.epoch, event.message.placement);
    if (event.message.kind === 'error') troubled = true;
    const said = ofMessage(event, main, requests);
    for (const sequence of said?.sequences ?? []) if (said !== null) add(sequence, said.event, said.epoch);
  }
  const accounts = [...bySequence.keys()]
    .sort((left, right) => left - right)
    .map((sequence): SequenceAccount => {
      const own = bySequence.get(sequence) ?? [];
      const [epoch, ...others] = epochs.get(sequence) ?? [];
      const only = epoch === undefined || others.length > 0 ? null : (placements.get(epoch) ?? null);
      const isKnown = !troubled && !ran.unsure.has(sequence);
      return { sequence, events: own, passes: passesOf(sequence, ran.passes), placement: only, troubled: !isKnown };
    });
  return { accounts, passes: ran.passes, problems: troubled ? [] : ran.problems };
}

/** By index in the record: the passes of main's device and the choices of its routers, for each sequence. */
function deviceEvents(passes: readonly JointPass[]): Map<number, { sequence: number; event: SequenceEvent }[]> {
  const byPlace = new Map<number, { sequence: number; event: SequenceEvent }[]>();
  const add = (place: number, sequence: number, event: SequenceEvent): void => {
    byPlace.set(place, [...(byPlace.get(place) ?? []), { sequence, event }]);
  };
  for (const of of passes)
    for (const { sequence, position, tokenIds, firstRow } of of.members) {
      add(of.begunAt, sequence, { kind: 'pass', position, tokenIds, of });
      for (const [layer, rows] of of.choices.entries()) {
        const experts = rows.slice(firstRow, firstRow + tokenIds.length);
        add(of.chosenAt[layer] ?? of.begunAt, sequence, { kind: 'choice', position, layer, experts });
      }
    }
  return byPlace;
}

function passesOf(sequence: number, passes: readonly JointPass[]): RanPass[] {
  return passes.flatMap((of) =>
    of.members
      .filter((member) => member.sequence === sequence)
      .map(({ position, tokenIds, firstRow }) => ({
        position,
        tokenIds,
        of,
        choices: of.choices.map((rows) => rows.slice(firstRow, firstRow + tokenIds.length)),
      })),
  );
}

interface Said {
  sequences: readonly number[];
  epoch: number | null;
  event: SequenceEvent;
}

function ofMessage(event: RecordedMessage, main: string, requests: Map<string, readonly number[]>): Said | null {
  if (event.from === main && event.way === 'sent') return fromMain(event, requests);
  if (event.to === main && event.way === 'arrived') return toMain(event, requests);
  return amongPeers(event, main);
}

function fromMain({ to, message }: RecordedMessage, requests: Map<string, readonly number[]>): Said | null {
  if (message.kind === 'execute') {
    const { execute } = message;
    const sequences = sequencesOf(execute);
    requests.set(`${to} ${execute.requestId}`, sequences);
    return { sequences, epoch: execute.epoch, event: { kind: 'execute', worker: to, execute } };
  }
  if (message.kind === 'release') {
    const { release } = message;
    return { sequences: sequencesOf(release), epoch: release.epoch, event: { kind: 'release', worker: to, release } };
  }
  if (message.kind === 'announce') {
    const { announce } = message;
    return {
      sequences: sequencesOf(announce),
      epoch: announce.epoch,
      event: { kind: 'announced', worker: to, announce },
    };
  }
  if (message.kind === 'end') return { sequences: [message.end.sequence], epoch: null, event: { kind: 'end', to } };
  return toShadow(to, message);
}

function toShadow(shadow: string, message: PeerMessage): Said | null {
  if (message.kind === 'begin') return ofOne(message.begin, { kind: 'begin', shadow, begin: message.begin });
  if (message.kind === 'token') return ofOne(message.token, { kind: 'token', shadow, token: message.token });
  if (message.kind === 'cacheRows') return ofOne(message.cacheRows, { kind: 'rows', rows: message.cacheRows });
  return null;
}

function toMain({ from, message }: RecordedMessage, requests: Map<string, readonly number[]>): Said | null {
  if (message.kind === 'result') {
    const sequences = requests.get(`${from} ${message.result.requestId}`);
    if (sequences === undefined) return null;
    return { sequences, epoch: null, event: { kind: 'result', worker: from, result: message.result } };
  }
  if (message.kind === 'restart') return ofOne(message.restart, { kind: 'restartArrived', restart: message.restart });
  if (message.kind === 'predict') {
    const prediction = message.predict;
    return {
      sequences: [prediction.pass.sequence],
      epoch: prediction.epoch,
      event: { kind: 'predictionArrived', shadow: from, prediction },
    };
  }
  if (message.kind === 'prefixKept') {
    const { sequence, positions } = message.prefixKept;
    return { sequences: [sequence], epoch: null, event: { kind: 'prefixKept', positions } };
  }
  if (message.kind !== 'draft') return null;
  return { sequences: [message.draft.sequence], epoch: null, event: { kind: 'draftArrived', draft: message.draft } };
}

function amongPeers({ way, from, to, message }: RecordedMessage, main: string): Said | null {
  if (message.kind === 'predict' && way === 'sent') {
    const prediction = message.predict;
    const sequences = [prediction.pass.sequence];
    if (to === main) return { sequences, epoch: null, event: { kind: 'predictionSent', shadow: from, prediction } };
    return { sequences, epoch: null, event: { kind: 'predicted', shadow: from, worker: to, prediction } };
  }
  if (message.kind !== 'token' || way !== 'arrived') return null;
  return {
    sequences: [message.token.sequence],
    epoch: null,
    event: { kind: 'tokenArrived', shadow: to, token: message.token },
  };
}

function ofOne({ sequence, epoch }: { sequence: number; epoch: number }, event: SequenceEvent): Said {
  return { sequences: [sequence], epoch, event };
}

/** All sequences with rows in it, and the sequence that names the pass. */
function sequencesOf({ pass, rows }: PassLayer): number[] {
  return [...new Set([pass.sequence, ...rows.map(({ sequence }) => sequence)])];
}
