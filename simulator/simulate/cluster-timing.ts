import { MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';
import { messageBytes } from '../../engine/emulation/message-bytes.js';
import type { Execute, ExecuteResult, Placement } from '../../shared/wire/messages.js';
import type { PeerMessage } from '../../shared/transport/stream-pace.js';
import { OperationLog } from '../timing/operation-log.js';
import type { TimedPass } from '../timing/recording-device.js';
import type { ClusterTrace } from '../trace/cluster-trace.js';
import { SHADOW_ID, type ClusterTimes } from './cluster-set-up.js';

/** Time when a pass of main began, and time when its logits were there. */
export interface PassTime {
  position: number;
  rows: number;
  beginMs: number;
  endMs: number;
}

/** The current layer of a sequence, and the longest time that one of its experts has waited for a load. */
interface LayerStall {
  position: number;
  layer: number;
  stallUs: number;
}

/** Measures values that the daemons do not count, from their messages and from main's passes. Only passes and waits of decoding count. */
export class ClusterTiming {
  readonly log = new OperationLog();
  readonly passes: PassTime[] = [];
  /** Time that main waited for loads, by layer, and number of these waits. */
  readonly stallMs: number[];
  readonly stalls: number[];
  /** Time that main waited for drafts before it began passes. For one request at a time. */
  draftWaitMs = 0;
  /** The shares of strict homes of each placement, by the order of its workers, and the time when main first published it. */
  readonly homeShares: { epoch: number; atMs: number; shares: number[] }[] = [];
  restarts = 0;
  messages = 0;
  sentBytes = 0;
  private readonly begunMs = new Map<TimedPass, number>();
  private lastLogitsMs = 0;
  private readonly asked = new Map<string, Execute>();
  private readonly layerStalls = new Map<number, LayerStall>();
  private readonly announcedPositions = new Map<string, number>();
  /** Main's sequence ids start here and rise in the order of the requests. */
  private firstSequence: number | null = null;

  /**
   * `promptOf`: the prompt of a request. `diagramPosition`: operations of the first prompt are stored around this position; null: none are
   * stored.
   */
  constructor(
    private readonly trace: ClusterTrace,
    private readonly times: Pick<ClusterTimes, 'model' | 'network'>,
    private readonly promptOf: (request: number) => number,
    private readonly nowMs: () => number,
    private readonly diagramPosition: number | null,
  ) {
    this.stallMs = new Array<number>(trace.layers).fill(0);
    this.stalls = new Array<number>(trace.layers).fill(0);
  }

  /** Called for main's passes; a pass's first token tells its prompt. */
  onPass(pass: TimedPass, what: 'begins' | 'ends'): void {
    const nowMs = this.nowMs();
    const { position, rows, tokenId: prompt } = pass;
    const isDecode = position >= this.trace.promptTokens(prompt);
    if (what === 'begins') {
      if (this.diagramPosition !== null && prompt === 0) {
        this.log.keeps = Math.abs(position - this.diagramPosition) <= 2 * MAX_DRAFT_ROWS;
      }
      if (!isDecode) return;
      this.begunMs.set(pass, nowMs);
      this.draftWaitMs += nowMs - this.lastLogitsMs;
      return;
    }
    this.lastLogitsMs = nowMs;
    const beginMs = this.begunMs.get(pass);
    if (beginMs === undefined) return;
    this.begunMs.delete(pass);
    this.passes.push({ position, rows, beginMs, endMs: nowMs });
  }

  /** The position for which the expert was last announced to the worker. */
  positionOf(node: string, layer: number, expert: number): number {
    return this.announcedPositions.get(`${node} ${layer} ${expert}`) ?? -1;
  }

  onMessage(from: string, to: string, message: PeerMessage): void {
    this.messages += 1;
    this.sentBytes += messageBytes(message, this.times);
    if (message.kind === 'execute') this.executeAsked(to, message.execute);
    else if (message.kind === 'result') this.resultCame(from, message.result);
    else if (message.kind === 'placement') this.placed(message.placement);
    else if (message.kind === 'restart') {
      if (from === SHADOW_ID && to === 'main') this.restarts += 1;
    } else if ((message.kind === 'predict' || message.kind === 'announce') && this.log.keeps) {
      const { pass, layer, experts } = message.kind === 'predict' ? message.predict : message.announce;
      for (const expert of experts) this.announcedPositions.set(`${to} ${layer} ${expert}`, pass.position);
    }
  }

  private placed({ epoch, workers }: Placement): void {
    if (this.homeShares.some((each) => each.epoch === epoch)) return;
    const shares = workers.map(({ homeShare = 0 }) => homeShare);
    this.homeShares.push({ epoch, atMs: this.nowMs(), shares });
  }

  /** Call when all requests have ended. */
  end(): void {
    for (const stall of this.layerStalls.values()) this.count(stall);
    this.layerStalls.clear();
  }

  private executeAsked(worker: string, execute: Execute): void {
    const { pass, layer } = execute;
    this.firstSequence ??= pass.sequence;
    if (this.log.keeps) {
      for (const { expert } of execute.experts)
        this.announcedPositions.set(`${worker} ${layer} ${expert}`, pass.position);
    }
    if (pass.position < this.trace.promptTokens(this.promptOf(pass.sequence - this.firstSequence))) return;
    this.asked.set(`${worker} ${execute.requestId}`, execute);
    const current = this.layerStalls.get(pass.sequence);
    if (current?.position === pass.position && current.layer === layer) return;
    if (current !== undefined) this.count(current);
    this.layerStalls.set(pass.sequence, { position: pass.position, layer, stallUs: 0 });
  }

  private resultCame(worker: string, { requestId, experts, last }: ExecuteResult): void {
    const key = `${worker} ${requestId}`;
    const execute = this.asked.get(key);
    if (execute === undefined) return;
    if (last) this.asked.delete(key);
    const stall = this.layerStalls.get(execute.pass.sequence);
    if (stall === undefined) return;
    for (const { stallUs } of experts) stall.stallUs = Math.max(stall.stallUs, stallUs);
  }

  private count({ layer, stallUs }: LayerStall): void {
    if (stallUs <= 0) return;
    this.stallMs[layer] = (this.stallMs[layer] ?? 0) + stallUs / 1000;
    this.stalls[layer] = (this.stalls[layer] ?? 0) + 1;
  }
}
