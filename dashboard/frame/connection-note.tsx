import type { JSX } from 'preact';
import type { Connection } from '../feed/dashboard-state.js';
import { startFeed } from '../feed/event-feed.js';

/** Says that what is shown may be old. Always there, so that screen readers notice what comes into it. */
export function ConnectionNote({ connection }: { connection: Connection }): JSX.Element {
  return (
    <div role="status" class="connection">
      {connection === 'lost' && (
        <p class="connection-note">
          <span>Main does not answer. What you see is the last it said.</span>
          <button type="button" class="button" onClick={startFeed}>
            Try now
          </button>
        </p>
      )}
    </div>
  );
}
