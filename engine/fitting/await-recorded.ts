import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import { LEAST_TOKENS } from './fitting-tokens.js';
import type { RecordedStates } from './recorded-states.js';

/** Between two looks at the file. */
const LOOK_EVERY_MS = 500;
/** A main that starts anew loads its model before it records. */
const RESTART_MS = 5 * 60_000;

export interface RecordedWait {
  readonly tokens: number;
  readonly signal: AbortSignal;
  readonly onProgress: (stage: 'serving', done: number, total: number) => void;
}

/**
 * Waits until a main that serves has recorded the tokens. If that main stops, it waits some minutes for the next one.
 * @throws USAGE where no main records so many, CANCELLED, STORAGE_FAILED
 */
export async function awaitRecorded(
  recorded: Pick<RecordedStates, 'path' | 'limit' | 'rows' | 'isWritten'>,
  { tokens, signal, onProgress }: RecordedWait,
  runtime: Pick<Runtime, 'sleep'>,
): Promise<void> {
  // A wait that never saw a main ends at once.
  let left = 0;
  for (;;) {
    // Main writes its last rows before it gives the file up.
    const isWritten = await recorded.isWritten();
    const rows = await recorded.rows();
    onProgress('serving', Math.min(rows, tokens), tokens);
    if (rows >= tokens) return;
    if (signal.aborted) {
      throw new OdmoeError(
        'CANCELLED',
        `waiting was interrupted with ${rows} of ${tokens} tokens recorded; main goes on, and the same command waits for the rest`,
      );
    }
    left = isWritten ? RESTART_MS / LOOK_EVERY_MS : left - 1;
    if (left < 0 || recorded.limit < tokens) throw tooFew(recorded, rows, tokens);
    await runtime.sleep(LOOK_EVERY_MS, signal);
  }
}

function tooFew({ path, limit }: Pick<RecordedStates, 'path' | 'limit'>, rows: number, tokens: number): OdmoeError {
  const why =
    limit < tokens ? `main records ${limit} at most (main.record_tokens)` : 'no main of this machine records now';
  const remedies = [
    limit < tokens
      ? `start main with main.record_tokens ${tokens} (--record-tokens)`
      : `start it with main.record_tokens ${tokens} or more (--record-tokens), or read in its log why it stopped`,
    ...(rows >= LEAST_TOKENS ? [`give --tokens ${rows}`] : []),
  ];
  return new OdmoeError(
    'USAGE',
    `${path}: ${rows} of ${tokens} tokens are recorded, and ${why}: ${remedies.join(', or ')}`,
  );
}
