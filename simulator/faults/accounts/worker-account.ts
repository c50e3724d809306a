import { rowsOutside } from '../../../shared/wire/pass-rows.js';
import type {
  Announce,
  Execute,
  PassLayer,
  PassRow,
  Release,
  Restart,
  RowRange,
} from '../../../shared/wire/messages.js';
import type { Recorded } from './recorder.js';

/** A sequence counts as ended if it had no execute while this many experts ran for others (worker-node/loader/main-progress.ts). */
const IDLE_EXECUTES = 64;
/** The layer of a sequence whose rows ran in a pass that begins with another sequence. */
const BEFORE_ANY_LAYER = -1;

interface Expected extends PassLayer {
  expert: number;
  byShadowAlone: boolean;
}

interface Reached {
  position: number;
  layer: number;
}

interface Progress {
  /** Position and layer of main's latest router choice; null: none. */
  passed: Reached | null;
  ended: boolean;
  lastExecute: number;
}

/**
 * Computes from the rules alone how one worker without a cache must react to its messages: its expectations, the number of requested experts
 * that were not announced (reloads), and the number of late predictions.
 */
export class WorkerAccount {
  reloads = 0;
  latePredictions = 0;
  executions = 0;
  private expected: Expected[] = [];
  private readonly sequences = new Map<number, Progress>();
  private executes = 0;

  /** `layers`: expert layers of the model; the executes of further ones are of its own head, which nobody announces and beside which no answer is idle. */
  constructor(
    private readonly worker: string,
    private readonly layers: number,
  ) {}

  take(event: Recorded): void {
    if (event.kind !== 'message') return;
    const { way, from, to, message } = event;
    if (way === 'sent' && from === this.worker && message.kind === 'result')
      this.executions += message.result.experts.filter(({ failure }) => failure === null).length;
    if (way !== 'arrived' || to !== this.worker) return;
    if (message.kind === 'predict') this.predict(message.predict, false);
    else if (message.kind === 'announce') this.announce(message.announce);
    else if (message.kind === 'restart') this.restart(message.restart);
    else if (message.kind === 'execute') this.execute(message.execute);
    else if (message.kind === 'release') this.release(message.release);
    else if (message.kind === 'end') this.end(message.end.sequence);
  }

  private restart({ sequence, position }: Restart): void {
    this.withdraw({ sequence, from: position, end: Infinity }, (one) => one.byShadowAlone);
  }

  /** An expert that main doubts stays expected. */
  private announce(announce: Announce): void {
    if (announce.doubted !== true) this.predict(announce, true);
  }

  private predict(prediction: Announce, byMain: boolean): void {
    const { pass, rows, layer, experts } = prediction;
    const { passed, ended } = this.progress(pass.sequence);
    const ahead = passed === null ? 1 : pass.position - passed.position || layer - passed.layer;
    if (ended || (byMain ? ahead < 0 : ahead <= 0)) {
      this.latePredictions += experts.length;
      return;
    }
    const isHere = (one: Expected): boolean => isOfPass(one, pass) && one.layer === layer;
    if (!byMain) this.drop((one) => one.byShadowAlone && isHere(one) && !experts.includes(one.expert));
    for (const expert of experts) {
      const known = this.find(prediction, expert) ?? this.findJoint(prediction, expert);
      if (known === undefined) {
        this.expected.push({ pass, rows, layer, expert, byShadowAlone: !byMain });
        continue;
      }
      if (byMain) known.byShadowAlone = false;
      addRows(known, rows);
    }
  }

  private execute({ pass, rows, layer, experts }: Execute): void {
    const here = { pass, rows, layer };
    for (const { expert, last } of experts) {
      const isOfHead = layer >= this.layers;
      if (!isOfHead) this.executes += 1;
      const alive = { ended: false, lastExecute: this.executes };
      Object.assign(this.progress(pass.sequence), alive, { passed: { position: pass.position, layer } });
      for (const { sequence, position } of othersOf(here)) {
        this.reach(sequence, { position, layer: BEFORE_ANY_LAYER });
        Object.assign(this.progress(sequence), alive);
      }
      this.dropPassed(here);
      let known = this.find(here, expert);
      if (known === undefined) {
        if (!isOfHead) this.reloads += 1;
        known = { ...here, expert, byShadowAlone: false };
        this.expected.push(known);
      } else addRows(known, rows);
      known.byShadowAlone = false;
      if (last) this.drop((one) => one === known);
      for (const [sequence, { lastExecute }] of this.sequences)
        if (lastExecute < this.executes - IDLE_EXECUTES) this.drop((one) => one.pass.sequence === sequence);
    }
  }

  private release({ pass, rows, layer, experts }: Release): void {
    const here = { pass, rows, layer };
    this.reach(pass.sequence, { position: pass.position, layer });
    for (const { sequence, position } of othersOf(here)) this.reach(sequence, { position, layer: BEFORE_ANY_LAYER });
    this.dropPassed(here);
    for (const expert of experts) {
      const known = this.find(here, expert);
      this.drop((one) => one === known);
    }
  }

  private end(sequence: number): void {
    this.progress(sequence).ended = true;
    this.withdraw({ sequence, from: 0, end: Infinity }, () => true);
  }

  /** The expectation of the pass; otherwise the one of a row alone. */
  private find({ pass, rows, layer }: PassLayer, expert: number): Expected | undefined {
    for (const own of [pass, ...othersOf({ pass, rows })]) {
      const known = this.expected.find((one) => isOfPass(one, own) && one.layer === layer && one.expert === expert);
      if (known !== undefined) return known;
    }
    return undefined;
  }

  /** The expectation of a pass that contains the first row. */
  private findJoint({ pass, layer }: PassLayer, expert: number): Expected | undefined {
    const isIts = (range: RowRange): boolean => range.sequence === pass.sequence && range.position === pass.position;
    return this.expected.find(
      (one) =>
        one.pass.sequence !== pass.sequence && one.layer === layer && one.expert === expert && one.rows.some(isIts),
    );
  }

  private dropPassed({ pass, rows, layer }: PassLayer): void {
    const dropBefore = (sequence: number, reached: Reached): void => {
      this.drop((one) => one.pass.sequence === sequence && isBefore({ ...one.pass, layer: one.layer }, reached));
    };
    dropBefore(pass.sequence, { position: pass.position, layer });
    for (const { sequence, position } of othersOf({ pass, rows })) {
      dropBefore(sequence, { position, layer: 0 });
      this.withdraw(
        { sequence, from: 0, end: position },
        (one) => one.pass.sequence !== sequence && !isOfPass(one, pass),
      );
    }
  }

  /** Removes the rows; an expectation without rows is removed, too. */
  private withdraw(rows: { sequence: number; from: number; end: number }, concerns: (one: Expected) => boolean): void {
    for (const one of this.expected) if (concerns(one)) one.rows = rowsOutside(one.rows, rows);
    this.drop((one) => one.rows.length === 0);
  }

  private drop(isVoid: (one: Expected) => boolean): void {
    this.expected = this.expected.filter((one) => !isVoid(one));
  }

  private reach(sequence: number, reached: Reached): void {
    const progress = this.progress(sequence);
    if (progress.passed === null || isBefore(progress.passed, reached)) progress.passed = reached;
  }

  private progress(sequence: number): Progress {
    const known = this.sequences.get(sequence) ?? { passed: null, ended: false, lastExecute: this.executes };
    this.sequences.set(sequence, known);
    return known;
  }
}

function addRows(known: Expected, rows: readonly RowRange[]): void {
  const sequences = new Set(known.rows.map(({ sequence }) => sequence));
  known.rows = [...known.rows, ...rows.filter(({ sequence }) => !sequences.has(sequence))];
}

/** Rows of sequences other than that of the pass. */
function othersOf({ pass, rows }: Pick<PassLayer, 'pass' | 'rows'>): RowRange[] {
  return rows.filter(({ sequence }) => sequence !== pass.sequence);
}

function isOfPass({ pass }: Expected, { sequence, position }: PassRow): boolean {
  return pass.sequence === sequence && pass.position === position;
}

function isBefore(left: Reached, right: Reached): boolean {
  return left.position < right.position || (left.position === right.position && left.layer < right.layer);
}
