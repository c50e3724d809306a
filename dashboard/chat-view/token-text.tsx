import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { percent, probabilityOf, shadeOf, visibleText } from './answer-words.js';
import type { AnswerToken } from './conversation.js';
import { popoverPlace, type PopoverPlace } from './popover-place.js';

/** Tokens that are drawn as one unit: while an answer grows, only its last unit is drawn again. */
const UNIT_TOKENS = 64;

interface Chosen {
  index: number;
  /** The place of the popover in the text's box. */
  place: PopoverPlace;
}

/** A text of tokens. Less likely tokens have a darker shade. Pointer, press or arrow keys show a token's alternatives. */
export function TokenText({ tokens }: { tokens: readonly AnswerToken[] }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const choose = (element: Element | null | undefined): void => {
    if (!(element instanceof HTMLElement) || element.dataset.token === undefined || box.current === null) return;
    const [rect] = element.getClientRects();
    if (rect === undefined) return;
    const place = popoverPlace(rect, box.current.getBoundingClientRect(), POPOVER_PIXELS, endOfView());
    setChosen({ index: Number(element.dataset.token), place });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') setChosen(null);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(tokens.length - 1, (chosen?.index ?? -step) + step));
    choose(box.current?.querySelector(`[data-token="${index}"]`));
  };
  const units = Array.from({ length: Math.ceil(tokens.length / UNIT_TOKENS) }, (_, unit) => unit * UNIT_TOKENS);
  const token = chosen === null ? undefined : tokens[chosen.index];
  return (
    <div
      ref={box}
      class="token-text"
      tabIndex={0}
      role="group"
      aria-label="Answer, token by token: arrow keys tell each one's alternatives"
      onPointerOver={(event) => choose(event.target as Element)}
      onClick={(event) => choose(event.target as Element)}
      onPointerLeave={() => setChosen(null)}
      onBlur={() => setChosen(null)}
      onKeyDown={onKeyDown}
    >
      {units.map((from) => (
        <TokenUnit key={from} tokens={tokens} from={from} to={Math.min(tokens.length, from + UNIT_TOKENS)} />
      ))}
      {chosen !== null && token !== undefined && <Alternatives token={token} place={chosen.place} />}
    </div>
  );
}

/** Width of the popover, and its largest height with all requested alternatives. */
const POPOVER_PIXELS = { width: 220, height: 150 };

/** The end of the window, or the top of the tabs that cover its end on a phone. */
function endOfView(): number {
  const tabs = document.querySelector('.tabs')?.getBoundingClientRect().top ?? 0;
  return tabs > window.innerHeight / 2 ? tabs : window.innerHeight;
}

function TokenUnit({ tokens, from, to }: { tokens: readonly AnswerToken[]; from: number; to: number }): JSX.Element {
  // Tokens before `to` do not change while the answer grows.
  return useMemo(
    () => (
      <>
        {tokens.slice(from, to).map((token, index) => (
          <span key={index} class={`token token-${shadeOf(token)}`} data-token={from + index}>
            {token.text}
          </span>
        ))}
      </>
    ),
    [from, to],
  );
}

function Alternatives({ token, place }: { token: AnswerToken; place: PopoverPlace }): JSX.Element {
  const { left, top, bottom } = place;
  const vertical = bottom === null ? { top: `${top ?? 0}px` } : { bottom: `${bottom}px` };
  return (
    <div
      class="alternatives"
      style={{ left: `${left}px`, ...vertical, width: `${POPOVER_PIXELS.width}px` }}
      role="status"
    >
      <p class="small">
        <code>{visibleText(token.text)}</code> <span class="quiet">{percent(probabilityOf(token.logprob))}</span>
      </p>
      <ul>
        {token.alternatives.map(({ text, logprob }, index) => (
          <li key={index} class={text === token.text ? 'alternative alternative-taken' : 'alternative'}>
            <code>{visibleText(text)}</code>
            <span class="alternative-bar">
              <span style={{ width: `${probabilityOf(logprob) * 100}%` }} />
            </span>
            <span class="number">{percent(probabilityOf(logprob))}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
