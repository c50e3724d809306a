/**
 * A server that generates for many sequences on the virtual clock. Its experts stream through the daemons' window (shared/decisions/residency),
 * over the daemons' emulated links and processor (engine/devices). It never adds times up: a pass ends when its last event has happened.
 */
import { PacedLink } from '../../engine/emulation/paced-link.js';
import { PacedProcessor } from '../../engine/emulation/paced-processor.js';
import { StreamingWindow, WINDOW_TENSORS, type WindowTensor } from './streaming-window.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { ExpertLayout, LayerLoads } from './expert-layout.js';
import type { ServerWork } from './server-work.js';

const MS_PER_S = 1000;

/** The number of sequences at a time, and the length of each. */
export interface ServerLoad {
  sequences: number;
  /** Positions of each sequence. */
  positions: number;
}

export interface StreamingPassFigures {
  /** Number of sequences that got a token: those whose keys and values fit. */
  rows: number;
  /** From the pass's beginning to its end. */
  passMs: number;
  /** Parts of it: computation of the cards, and transfers of keys and values before the first layer. */
  computeMs: number;
  swapMs: number;
}

export class StreamingServer {
  private readonly processor: PacedProcessor;
  private readonly decompression: PacedLink;
  private readonly hostLink: PacedLink;
  private readonly window: StreamingWindow;
  private steps = 0;
  private loadedStep: (() => void) | null = null;

  constructor(
    private readonly runtime: Runtime,
    private readonly work: ServerWork,
    private layout: ExpertLayout,
    /** Device bytes for keys and values; null: the memory that experts leave. */
    private readonly cacheBytes: number | null = null,
  ) {
    this.processor = new PacedProcessor(runtime);
    this.decompression = new PacedLink(runtime);
    this.hostLink = new PacedLink(runtime);
    this.window = new StreamingWindow(work.layers, work.experts);
  }

  /** Changes the layout, from the next loaded layer on. */
  changeLayout(layout: ExpertLayout): void {
    this.layout = layout;
  }

  /** Number of sequences whose keys and values fit beside the experts. */
  fitting({ sequences, positions }: ServerLoad): number {
    const freeBytes = this.cacheBytes ?? this.work.freeBytes - this.layout.deviceBytes;
    return Math.max(0, Math.min(sequences, Math.floor(freeBytes / this.work.sequenceBytes(positions))));
  }

  /**
   * Makes one token for as many sequences as fit. The others wait in host memory. Sequences take turns: those that have waited longest come
   * first and replace as many others. Zero rows: no sequence fits.
   */
  async pass(load: ServerLoad): Promise<StreamingPassFigures> {
    const rows = this.fitting(load);
    if (rows === 0) return { rows, passMs: 0, computeMs: 0, swapMs: 0 };
    const startMs = this.runtime.nowMs();
    this.loadAhead();
    await this.swap(Math.min(rows, load.sequences - rows), load.positions);
    const swapMs = this.runtime.nowMs() - startMs;
    let computeMs = 0;
    for (let layer = 0; layer < this.work.layers; layer += 1) {
      const step = this.steps++;
      await this.untilLoaded(step);
      const headMs = layer === this.work.layers - 1 ? this.work.headMs(rows) : 0;
      const layerMs = this.work.layerMs(layer, rows, load.positions) + headMs;
      computeMs += layerMs;
      await this.processor.operate(layerMs, () => Promise.resolve());
      this.window.computed(step);
      this.loadAhead();
    }
    return { rows, passMs: this.runtime.nowMs() - startMs, computeMs, swapMs };
  }

  /** Algorithm 1: loads every layer whose window blocks are free, in order. */
  private loadAhead(): void {
    while (this.window.mayLoad) {
      const loads = this.layout.layers[this.window.nextLayer];
      const { step } = this.window.load([]);
      for (const type of WINDOW_TENSORS) this.loadType(step, type, loads?.[type] ?? { compressed: 0, host: 0 });
    }
  }

  /** Both backends load their shares at the same time. */
  private loadType(step: number, type: WindowTensor, { compressed, host }: LayerLoads[WindowTensor]): void {
    const parts = [
      { link: this.decompression, ms: (compressed / this.work.rate('decompressBytesPerS')) * MS_PER_S },
      { link: this.hostLink, ms: (host / this.work.rate('expertLinkBytesPerS')) * MS_PER_S },
    ].filter(({ ms }) => ms > 0);
    let left = parts.length;
    const ended = (): void => {
      left -= 1;
      if (left > 0) return;
      this.window.loaded(step, type);
      this.loadedStep?.();
    };
    if (parts.length === 0) this.window.loaded(step, type);
    for (const { link, ms } of parts) void this.transfer(link, ms).then(ended);
  }

  private async untilLoaded(step: number): Promise<void> {
    while (!this.window.isLoaded(step)) {
      await new Promise<void>((resolve) => {
        this.loadedStep = resolve;
      });
      this.loadedStep = null;
    }
  }

  /** Swaps keys and values: those of `sequences` sequences leave while those of as many others arrive. The link works both ways at once. */
  private async swap(sequences: number, positions: number): Promise<void> {
    if (sequences === 0) return;
    const bytes = sequences * this.work.sequenceBytes(positions);
    await this.transfer(this.hostLink, (bytes / this.work.rate('cacheLinkBytesPerS')) * MS_PER_S, true);
  }

  private transfer(link: PacedLink, ms: number, urgent = false): Promise<void> {
    return new Promise((resolve) => {
      link.begin({
        partMs: { exponent: 0, signMantissa: ms },
        recoverMs: 0,
        urgent,
        order: null,
        work: Promise.resolve(),
        ended: resolve,
      });
    });
  }
}
