import { Worker } from 'node:worker_threads';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { FORMAT_FIELD } from '../../shared/wire/output-format.js';
import type { OutputFormat } from '../../shared/wire/messages.js';
import { type CompiledGrammar, type PackedGrammar, unpackGrammar } from '../output-format/packed-grammar.js';
import type { WaitRuntime } from '../../shared/base/runtime/peer-wait.js';
import { runInSteps } from '../../shared/base/runtime/work-steps.js';
import { type QueueThread, type ThreadQueueWords, ThreadQueue } from '../threads/thread-queue.js';

/** Compiles output formats outside of the caller's thread. */
export interface FormatCompiler {
  /**
   * `singleBytes`: for each byte 1 if a token is this single byte. Rejects with REQUEST_INVALID for an invalid format, and the errors of the
   * implementation.
   */
  compile(format: OutputFormat, singleBytes: Uint8Array, signal: AbortSignal): Promise<CompiledGrammar>;
  /** Idempotent. */
  close(): Promise<void>;
}

/** A question to the thread. */
export interface FormatQuestion {
  format: OutputFormat;
  singleBytes: Uint8Array;
}

export type FormatThread = QueueThread<FormatQuestion, PackedGrammar>;

/** Longest time for one format: formats within the limits of format-limits.ts take a few seconds at most. */
export const FORMAT_LIMIT_MS = 30_000;
/** A thread without questions ends after this time. */
export const FORMAT_IDLE_MS = 120_000;
const HEAP_LIMIT_MIB = 1024;

const WORDS: ThreadQueueWords = {
  waiting: 'output formats wait to be compiled already',
  done: 'its output format was compiled',
  thread: 'the thread that compiles output formats',
  late: () =>
    new OdmoeError(
      'REQUEST_INVALID',
      `the output format takes over ${FORMAT_LIMIT_MS / 1000} s to be compiled; make it smaller`,
      {
        field: FORMAT_FIELD,
      },
    ),
};

export interface ThreadedFormatCompilerOptions {
  startThread: () => FormatThread;
  /** Formats that may wait while another one is compiled. */
  queueLimit: number;
  runtime: WaitRuntime;
}

export function startFormatThread(): FormatThread {
  return new Worker(new URL('./format-thread.js', import.meta.url), {
    execArgv: [],
    resourceLimits: { maxOldGenerationSizeMb: HEAP_LIMIT_MIB },
  });
}

/** Compiles in a thread, which runs while there are formats. Also rejects with QUEUE_FULL, CANCELLED, NO_MAIN, and INTERNAL when the thread dies. */
export class ThreadedFormatCompiler implements FormatCompiler {
  private readonly lane: ThreadQueue<FormatQuestion, PackedGrammar>;

  constructor(private readonly options: ThreadedFormatCompilerOptions) {
    const { startThread, queueLimit, runtime } = options;
    this.lane = new ThreadQueue({
      startThread,
      runtime,
      words: WORDS,
      queueLimit,
      limitMs: FORMAT_LIMIT_MS,
      idleMs: FORMAT_IDLE_MS,
    });
  }

  async compile(format: OutputFormat, singleBytes: Uint8Array, signal: AbortSignal): Promise<CompiledGrammar> {
    const packed = await this.lane.run({ format, singleBytes }, lengthOf(format), signal);
    return runInSteps(unpackGrammar(packed), this.options.runtime);
  }

  close(): Promise<void> {
    return this.lane.close();
  }
}

/** Approximate number of characters of the format. */
function lengthOf({ alternatives }: OutputFormat): number {
  return alternatives.reduce((sum, { parts }) => sum + JSON.stringify(parts).length, 0);
}
