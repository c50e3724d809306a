import type { ComponentChildren, JSX, RefObject } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { percent, probabilityOf, visibleText } from './answer-words.js';
import type { AnswerToken } from './conversation.js';
import { popoverPlace, type PopoverPlace } from './popover-place.js';

interface Chosen {
  index: number;
  /** The place of the popover in the text's box. */
  place: PopoverPlace;
}

interface TokenTextProps {
  tokens: readonly AnswerToken[];
  /** Elements of which some have the attribute `data-token`: the index of the token that their text comes from. */
  children: ComponentChildren;
}

/** A text whose tokens are known. Pointer, press or arrow keys show a token's alternatives. */
export function TokenText({ tokens, children }: TokenTextProps): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const choose = (index: number, element: Element): void => {
    const [rect] = element.getClientRects();
    if (rect === undefined || box.current === null) return;
    const place = popoverPlace(rect, box.current.getBoundingClientRect(), POPOVER_PIXELS, endOfView());
    setChosen({ index, place });
  };
  const chooseAt = ({ target }: Event): void => {
    const element = (target as Element).closest<HTMLElement>('[data-token]');
    if (element !== null) choose(Number(element.dataset.token), element);
  };
  // Text that moves under a pointer at rest, as while an answer grows, chooses nothing.
  const onPointerMove = (event: PointerEvent): void => {
    if (event.pointerType !== 'touch') chooseAt(event);
  };
  useClosedByKeys(box, chosen !== null, () => setChosen(null));
  const onKeyDown = (event: KeyboardEvent): void => {
    // Tables and code within the text scroll by the same keys.
    if (box.current === null || event.target !== box.current) return;
    if (event.key === 'Escape' && chosen !== null) {
      setChosen(null);
      event.stopPropagation();
    }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(tokens.length - 1, (chosen?.index ?? -step) + step));
    const element = elementOf(box.current, index);
    if (element !== null) choose(index, element);
  };
  const token = chosen === null ? undefined : tokens[chosen.index];
  return (
    <div
      ref={box}
      class="token-text markdown"
      tabIndex={0}
      role="group"
      aria-label="Answer, token by token: arrow keys tell each one's alternatives"
      onPointerMove={onPointerMove}
      onClick={chooseAt}
      onPointerLeave={() => setChosen(null)}
      onBlur={() => setChosen(null)}
      onKeyDown={onKeyDown}
    >
      {children}
      {chosen !== null && token !== undefined && <Alternatives token={token} place={chosen.place} />}
    </div>
  );
}

/** Calls `close` for a key that is pressed outside the box, so that what lies over a field does not cover what is typed there. */
function useClosedByKeys(box: RefObject<HTMLElement | null>, isOpen: boolean, close: () => void): void {
  useEffect(() => {
    if (!isOpen) return undefined;
    const onKey = ({ target }: KeyboardEvent): void => {
      if (!(target instanceof Node) || box.current?.contains(target) !== true) close();
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [isOpen]);
}

/** The element of a token; for a token that is only marks of Markdown or a line end, of the nearest token before it that has one. */
function elementOf(box: HTMLElement, index: number): Element | null {
  for (let shown = index; shown >= 0; shown--) {
    const element = box.querySelector(`[data-token="${shown}"]`);
    if (element !== null) return element;
  }
  return box.querySelector('[data-token]');
}

/** Width of the popover, and its largest height with all requested alternatives. */
const POPOVER_PIXELS = { width: 220, height: 150 };

/** The end of the window, or the top of the tabs that cover its end on a phone. */
function endOfView(): number {
  const tabs = document.querySelector('.tabs')?.getBoundingClientRect().top ?? 0;
  return tabs > window.innerHeight / 2 ? tabs : window.innerHeight;
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
