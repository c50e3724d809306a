import type { JSX } from 'preact';
import type { PassTimeline } from '../../shared/wire/cluster-events.js';
import { compare, LIVE, pause, show, step, type PassChoice, type ShownPasses } from './pass-choice.js';

export interface PassControlsProps {
  choice: PassChoice;
  shown: ShownPasses;
  newest: readonly PassTimeline[];
  onChoice: (choice: PassChoice) => void;
}

/** Buttons to pause and step, and the choice of the shown passes. */
export function PassControls(props: PassControlsProps): JSX.Element {
  const { choice, shown, newest, onChoice } = props;
  const newestFirst = [...shown.passes].reverse();
  return (
    <div class="pass-controls">
      <StepButtons {...props} />
      <label class="pass-select">
        <span class="small quiet">Pass</span>
        <select
          class="field"
          value={String(shown.shown?.number ?? '')}
          onChange={(event) => onChoice(show(choice, newest, Number(event.currentTarget.value)))}
        >
          {newestFirst.map((pass) => (
            <PassOption key={pass.number} pass={pass} />
          ))}
        </select>
      </label>
      <label class="pass-select">
        <span class="small quiet">beside</span>
        <select
          class="field"
          value={String(shown.compared?.number ?? '')}
          onChange={({ currentTarget: { value } }) =>
            onChoice(compare(choice, newest, value === '' ? null : Number(value)))
          }
        >
          <option value="">none</option>
          {newestFirst
            .filter((pass) => pass !== shown.shown)
            .map((pass) => (
              <PassOption key={pass.number} pass={pass} />
            ))}
        </select>
      </label>
    </div>
  );
}

function StepButtons({ choice, shown, newest, onChoice }: PassControlsProps): JSX.Element {
  const isLive = choice.paused === null;
  const index = shown.shown === null ? -1 : shown.passes.indexOf(shown.shown);
  return (
    <div class="button-row" role="group" aria-label="Passes">
      <button
        type="button"
        class="button"
        disabled={index <= 0}
        aria-label="The pass before"
        onClick={() => onChoice(step(choice, newest, -1))}
      >
        ◂
      </button>
      <button
        type="button"
        class={isLive ? 'button' : 'button button-main'}
        onClick={() => onChoice(isLive ? pause(newest) : LIVE)}
      >
        {isLive ? 'Pause' : 'Live'}
      </button>
      <button
        type="button"
        class="button"
        disabled={isLive || index >= shown.passes.length - 1}
        aria-label="The pass after"
        onClick={() => onChoice(step(choice, newest, 1))}
      >
        ▸
      </button>
    </div>
  );
}

function PassOption({ pass }: { pass: PassTimeline }): JSX.Element {
  const rows = pass.members.reduce((sum, member) => sum + member.rows, 0);
  const what = pass.members.some(({ kind }) => kind === 'prompt') ? ', prompt' : '';
  return (
    <option value={String(pass.number)}>
      {`${pass.number}: ${pass.durationMs.toFixed(1)} ms, ${rows} ${rows === 1 ? 'row' : 'rows'}${what}`}
    </option>
  );
}
