/** What a span of time was spent on; the letters of OD-MoE figures 2, 4 and 5. */
export type SpanKind = 'M' | 'S' | 'EL' | 'EC' | 'head' | 'transfer';

export interface Span {
  kind: SpanKind;
  /** main, shadow or a worker; of a transfer the receiver. */
  lane: string;
  /** First position of the pass; of a load of the prompt its last one. */
  position: number;
  layer: number;
  /** -1 where it is of no one expert. */
  expert: number;
  beginMs: number;
  endMs: number;
  /** A load that was given up. */
  cancelled: boolean;
}

/** When the pass of a position began and when its last layer's experts had come back. */
export interface PassTime {
  position: number;
  rows: number;
  beginMs: number;
  endMs: number;
}

/** Totals of what happened, and the spans of the positions asked for. */
export class TimingRecorder {
  readonly spans: Span[] = [];
  readonly passes: PassTime[] = [];
  /** Time main waited in decode for a load, by layer. */
  readonly stallMs: number[];
  readonly stalls: number[];
  loads = 0;
  cancelledLoads = 0;
  executions = 0;
  /** Of decode: experts activated by rows whose token was main's, and those of them that were predicted (OD-MoE equation 3). */
  activated = 0;
  predictedCorrectly = 0;
  /** Activated experts that nobody had been told to load. */
  missed = 0;
  /** Of drafts that main ran. */
  drafts = 0;
  acceptedDrafts = 0;
  /** Time main waited for drafts before it began passes. */
  draftWaitMs = 0;
  restarts = 0;
  messages = 0;
  sentBytes = 0;
  loadedBusyMs = 0;

  /** `keep`: whether the spans of a position are kept. */
  constructor(
    layers: number,
    private readonly keep: (position: number) => boolean = () => false,
  ) {
    this.stallMs = new Array<number>(layers).fill(0);
    this.stalls = new Array<number>(layers).fill(0);
  }

  span(span: Span): void {
    if (this.keep(span.position)) this.spans.push(span);
  }

  stall(layer: number, stallMs: number): void {
    if (stallMs <= 0) return;
    this.stallMs[layer] = (this.stallMs[layer] ?? 0) + stallMs;
    this.stalls[layer] = (this.stalls[layer] ?? 0) + 1;
  }
}
