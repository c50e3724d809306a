import type { JSX } from 'preact';
import { SHADE_PERCENTS } from './answer-words.js';
import { setShowsTint, useShowsTint } from './page-preferences.js';

/** Switches the shades of unsure tokens, and says what each shade means. */
export function TintSwitch(): JSX.Element {
  const shows = useShowsTint();
  return (
    <div class="tint-switch small">
      <label>
        <input type="checkbox" checked={shows} onChange={(event) => setShowsTint(event.currentTarget.checked)} />
        Shade unsure tokens
      </label>
      {shows && (
        <ul class="tint-legend" aria-label="Shades: the model gave the token">
          {SHADE_PERCENTS.map((percent, index) => (
            <li key={percent}>
              <span class={`token-${index + 1}`}>below {percent} %</span>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
