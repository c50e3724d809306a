import type { Execute, Prediction, Release } from '../../../shared/rpc/messages.js';
import type { Recorded } from './recorder.js';

/** A sequence without an execute while this many experts ran for others is taken for ended (worker-node/loader/sequence-progress.ts). */
const IDLE_EXECUTES = 64;

interface Expected {
  sequence: number;
  position: number;
  layer: number;
  expert: number;
  byShadowAlone: boolean;
}

interface Progress {
  /** Where main's router has spoken last; null: nowhere. */
  passed: { position: number; layer: number } | null;
  ended: boolean;
  lastExecute: number;
}

/**
 * What one worker without a cache makes of what it is told, by the rules alone: which experts it expects, and so how many of those that
 * main asked for nobody had told it of, and how many it was told of too late.
 */
export class WorkerAccount {
  reloads = 0;
  latePredictions = 0;
  executions = 0;
  private expected: Expected[] = [];
  private readonly sequences = new Map<number, Progress>();

  constructor(
    private readonly worker: string,
    private readonly main: string,
  ) {}

  take(event: Recorded): void {
    if (event.kind !== 'message') return;
    const { way, from, to, message } = event;
    if (way === 'sent' && from === this.worker && message.kind === 'result')
      this.executions += message.result.experts.filter(({ failure }) => failure === null).length;
    if (way !== 'arrived' || to !== this.worker) return;
    if (message.kind === 'prediction') this.predict(message.prediction, from === this.main);
    else if (message.kind === 'execute') this.execute(message.execute);
    else if (message.kind === 'release') this.release(message.release);
    else if (message.kind === 'end') this.end(message.end.sequence);
  }

  private predict({ pass, layer, experts, restart }: Prediction, byMain: boolean): void {
    const { sequence, position } = pass;
    if (restart) {
      this.drop((one) => one.byShadowAlone && one.sequence === sequence && one.position >= position);
      return;
    }
    const { passed, ended } = this.progress(sequence);
    const ahead = passed === null ? 1 : position - passed.position || layer - passed.layer;
    if (ended || (byMain ? ahead < 0 : ahead <= 0)) {
      this.latePredictions += experts.length;
      return;
    }
    const isHere = (one: Expected): boolean => isAt(one, { sequence, position, layer });
    if (!byMain) this.drop((one) => one.byShadowAlone && isHere(one) && !experts.includes(one.expert));
    for (const expert of experts) {
      const known = this.expected.find((one) => isHere(one) && one.expert === expert);
      if (known === undefined) this.expected.push({ sequence, position, layer, expert, byShadowAlone: !byMain });
      else if (byMain) known.byShadowAlone = false;
    }
  }

  private execute({ pass, layer, experts }: Execute): void {
    const here = { ...pass, layer };
    for (const { expert, last } of experts) {
      this.executes += 1;
      const progress = this.progress(pass.sequence);
      Object.assign(progress, { passed: here, ended: false, lastExecute: this.executes });
      this.dropPassed(here);
      const known = this.expected.find((one) => isAt(one, here) && one.expert === expert);
      if (known === undefined) {
        this.reloads += 1;
        this.expected.push({ ...here, expert, byShadowAlone: false });
      } else known.byShadowAlone = false;
      if (last) this.drop((one) => isAt(one, here) && one.expert === expert);
      for (const [sequence, { lastExecute }] of this.sequences)
        if (lastExecute < this.executes - IDLE_EXECUTES) this.drop((one) => one.sequence === sequence);
    }
  }

  private release({ pass, layer, experts }: Release): void {
    const here = { ...pass, layer };
    const progress = this.progress(pass.sequence);
    if (progress.passed === null || isBefore(progress.passed, here)) progress.passed = here;
    this.dropPassed(here);
    this.drop((one) => isAt(one, here) && experts.includes(one.expert));
  }

  private end(sequence: number): void {
    this.progress(sequence).ended = true;
    this.drop((one) => one.sequence === sequence);
  }

  private dropPassed(here: { sequence: number; position: number; layer: number }): void {
    this.drop((one) => one.sequence === here.sequence && isBefore(one, here));
  }

  private drop(isVoid: (one: Expected) => boolean): void {
    this.expected = this.expected.filter((one) => !isVoid(one));
  }

  private executes = 0;

  private progress(sequence: number): Progress {
    const known = this.sequences.get(sequence) ?? { passed: null, ended: false, lastExecute: this.executes };
    this.sequences.set(sequence, known);
    return known;
  }
}

interface Place {
  sequence: number;
  position: number;
  layer: number;
}

function isAt(one: Place, { sequence, position, layer }: Place): boolean {
  return one.sequence === sequence && one.position === position && one.layer === layer;
}

function isBefore(left: Omit<Place, 'sequence'>, right: Omit<Place, 'sequence'>): boolean {
  return left.position < right.position || (left.position === right.position && left.layer < right.layer);
}
