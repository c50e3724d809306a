import { RECORDED_PASSES } from '../../shared/wire/cluster-events.js';
import type { Predict } from '../../shared/wire/messages.js';
import type { ExpertOutcome } from '../pass/expert-dispatcher.js';
import type { MemberRows } from '../pass/pass-member.js';
import type { ObservedPass, PassObserver, RoutedExpert } from '../pass/pass-observer.js';
import type { ExpertHeatCounts } from './expert-heat.js';
import type { LayerRecord, PassRecord, ArrivedPrediction } from './pass-record.js';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';

/** Most predictions that wait for their pass. Beyond that, those of the sequence that was predicted first are dropped. */
export const MAX_WAITING_PREDICTIONS = 8192;

/** Predictions that have reached main, until the passes that they are for have ended. */
export class PredictionArrivals {
  private readonly bySequence = new Map<number, ArrivedPrediction[]>();
  private count = 0;

  add(arrival: ArrivedPrediction): void {
    const { sequence } = arrival;
    const before = this.bySequence.get(sequence);
    if (before === undefined) this.bySequence.set(sequence, [arrival]);
    else before.push(arrival);
    this.count += 1;
    while (this.count > MAX_WAITING_PREDICTIONS) this.forgetFirst();
  }

  /** Takes the predictions for passes of the sequence that begin at positions from `first` to before `end`. Those for earlier passes are dropped. */
  take(sequence: number, first: number, end: number): ArrivedPrediction[] {
    const waiting = this.bySequence.get(sequence) ?? [];
    const later = waiting.filter(({ position }) => position >= end);
    this.count -= waiting.length - later.length;
    if (later.length > 0) this.bySequence.set(sequence, later);
    else this.bySequence.delete(sequence);
    return waiting.filter(({ position }) => position >= first && position < end);
  }

  /** The sequence has ended: its remaining predictions have no pass. */
  forget(sequence: number): void {
    this.count -= this.bySequence.get(sequence)?.length ?? 0;
    this.bySequence.delete(sequence);
  }

  private forgetFirst(): void {
    const [first] = this.bySequence.keys();
    assertInvariant(first !== undefined, 'predictions that are counted belong to a sequence.');
    this.forget(first);
  }
}

/** Most results of one recorded pass, and of all recorded passes. Beyond these, a pass leaves out its later results, and the oldest pass is dropped. */
export const MAX_RESULTS_OF_PASS = 8192;
export const MAX_REMEMBERED_RESULTS = 65_536;

export interface RecordedCounts {
  passes: number;
  rows: number;
}

/** Records what passes do, with a few numbers for each expert, and holds the last passes. */
export class PassRecorder implements PassObserver {
  private readonly remembered: { record: PassRecord; results: number }[] = [];
  private readonly arrivals = new PredictionArrivals();
  private rememberedResults = 0;
  private passes = 0;
  private rows = 0;

  /** `onPass`: a pass has run to its end. */
  constructor(
    private readonly nowMs: () => number,
    private readonly heat: Pick<ExpertHeatCounts, 'chosen'>,
    private readonly onPass: (record: PassRecord) => void,
  ) {}

  get counts(): RecordedCounts {
    return { passes: this.passes, rows: this.rows };
  }

  /** The last passes that ran to their end, the oldest first. */
  get records(): readonly PassRecord[] {
    return this.remembered.map(({ record }) => record);
  }

  begin(members: readonly MemberRows[]): ObservedPass {
    const record: PassRecord = {
      number: 0,
      beginMs: this.nowMs(),
      endMs: 0,
      layers: [],
      predictions: [],
      members: members.map(({ member, position, tokenIds, decodeFrom }) => ({
        sequence: member.id,
        position,
        rows: tokenIds.length,
        kind: decodeFrom < tokenIds.length ? 'decode' : 'prompt',
      })),
    };
    return new RecordedPass(record, this.nowMs, this.heat, (results) => this.ended(members, record, results));
  }

  predictionArrived({ pass, layer, experts, runUs = 0 }: Predict): void {
    this.arrivals.add({ ...pass, layer, experts, runUs, receivedMs: this.nowMs() });
  }

  sequenceEnded(sequence: number): void {
    this.arrivals.forget(sequence);
  }

  /** `results`: number of results in the record; null: the pass has failed. */
  private ended(members: readonly MemberRows[], record: PassRecord, results: number | null): void {
    for (const { member, position, tokenIds, decodeFrom } of members) {
      const end = position + tokenIds.length;
      record.predictions.push(...this.arrivals.take(member.id, position + decodeFrom, end));
    }
    if (results === null) return;
    this.passes += 1;
    record.number = this.passes;
    for (const { rows } of record.members) this.rows += rows;
    this.remembered.push({ record, results });
    this.rememberedResults += results;
    while (this.remembered.length > RECORDED_PASSES || this.rememberedResults > MAX_REMEMBERED_RESULTS) {
      this.rememberedResults -= this.remembered.shift()?.results ?? 0;
    }
    this.onPass(record);
  }
}

/** Records one running pass. */
class RecordedPass implements ObservedPass {
  /** Times at which unanswered messages were sent, by worker and expert, in their order. */
  private readonly sentMs = new Map<string, number[]>();
  private current: LayerRecord | null = null;
  private results = 0;

  constructor(
    private readonly record: PassRecord,
    private readonly nowMs: () => number,
    private readonly heat: Pick<ExpertHeatCounts, 'chosen'>,
    private readonly onEnd: (results: number | null) => void,
  ) {}

  layerBegun(layer: number): void {
    const beginMs = this.nowMs();
    const times = { beginMs, routedMs: beginMs, answeredMs: beginMs, endMs: beginMs };
    this.current = { layer, ...times, outcomes: new Map(), experts: [] };
    this.sentMs.clear();
    this.record.layers.push(this.current);
  }

  routed(layer: number, experts: readonly RoutedExpert[]): void {
    const { current } = this;
    if (current === null) return;
    current.routedMs = this.nowMs();
    for (const { expert, rows, outcome } of experts) {
      current.outcomes.set(expert, outcome);
      this.heat.chosen(layer, expert, rows);
    }
  }

  sent(_layer: number, workerId: string, experts: readonly number[]): void {
    const nowMs = this.nowMs();
    for (const expert of experts) {
      const key = `${workerId} ${expert}`;
      const before = this.sentMs.get(key);
      if (before === undefined) this.sentMs.set(key, [nowMs]);
      else before.push(nowMs);
    }
  }

  received(_layer: number, { work, workerId, result, resent }: ExpertOutcome): void {
    if (this.current === null || this.results >= MAX_RESULTS_OF_PASS) return;
    this.results += 1;
    const { expert } = work;
    // One literal: an object that is merged from several takes ten times as long to make, and this runs for each expert of each pass.
    this.current.experts.push({
      expert,
      workerId,
      rows: work.rows.length,
      resent,
      sentMs: resent ? null : (this.sentMs.get(`${workerId} ${expert}`)?.shift() ?? null),
      receivedMs: this.nowMs(),
      wasLoaded: result.wasLoaded,
      stallUs: result.stallUs,
      executeUs: result.executeUs,
      loadUs: result.loadUs,
      loadedBeforeUs: result.loadedBeforeUs,
      begunUs: result.begunUs,
      answeredUs: result.answeredUs,
    });
  }

  answered(): void {
    if (this.current !== null) this.current.answeredMs = this.nowMs();
  }

  layerEnded(): void {
    if (this.current !== null) this.current.endMs = this.nowMs();
  }

  ended(failed: boolean): void {
    this.record.endMs = this.nowMs();
    this.onEnd(failed ? null : this.results);
  }
}
