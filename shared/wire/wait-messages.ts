/** What main tells of its waits and links in its status; the rest of the wire is in messages.ts. */

/** How long main waits for the experts of a layer in decode; means are of the last passes. */
export interface LayerWait {
  layer: number;
  passes: number;
  waitMs: number;
  /** Of waitMs, the longest that one of the experts waited for its load. */
  stallMs: number;
  /** Whose result is the last most often; empty: one worker does all of the layer. */
  slowestWorker: string;
}

/** How long main waits for a worker's part of a layer in decode; means are of its last executes. */
export interface WorkerWait {
  worker: string;
  executes: number;
  waitMs: number;
  stallMs: number;
  executeMs: number;
  /** The rest of waitMs: the network, and what the work waits behind. */
  otherMs: number;
  /** Of layers that it shares with others: where its result is the last, from 0 to 1. */
  lastShare: number;
  /** What such a layer waits for it alone, on the mean. */
  costMs: number;
}

/** A hop main -> worker -> main, and its parts. */
export interface HopStages {
  /** From the layer's first message to this worker's last result. */
  roundTripMs: number;
  /** Network both ways, with what event loops let wait. */
  transitMs: number;
  /** In the worker: from the message to the call of its device. */
  callMs: number;
  /** From there to the end in the worker's event loop, without the execution: threads that wake up. */
  handOffMs: number;
  executeMs: number;
  /** From there to the answer. */
  replyMs: number;
}

/** Where the time of main's messages to a worker goes, in decode that loads nothing. Of the last hops. */
export interface WorkerHops {
  worker: string;
  /** Since main's start. */
  hops: number;
  median: HopStages;
  p99: HopStages;
}

/** Messages of main's stream with a peer, over all connections since main's start. */
export interface LinkBytes {
  peer: string;
  sentBytes: number;
  receivedBytes: number;
  /** Of the keepalive's questions, the latest weighing most; 0: none was answered on this connection yet. */
  roundTripMs: number;
}

/** Of main's passes since its start. */
export interface PassCounts {
  passes: number;
  /** Of all of these. */
  rows: number;
  /** Times that a sequence gave its memory back, and was computed again. */
  preemptions: number;
  /** Sequences whose rows wait for a pass now. */
  waiting: number;
}
