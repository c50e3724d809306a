import type { JSX } from 'preact';
import { useMemo, useRef, useState } from 'preact/hooks';
import { percent, probabilityOf, shadeOf, visibleText } from './answer-words.js';
import type { AnswerToken } from './conversation.js';

/** Tokens that are drawn as one piece: while an answer grows, only its last piece is drawn again. */
const PIECE_TOKENS = 64;

interface Chosen {
  index: number;
  /** Of the popover, in pixels of the text's box. */
  left: number;
  top: number;
}

/** A text of tokens, each shaded by how unlikely it was; pointer, press or arrow keys tell its alternatives. */
export function TokenText({ tokens }: { tokens: readonly AnswerToken[] }): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const choose = (element: Element | null | undefined): void => {
    if (!(element instanceof HTMLElement) || element.dataset.token === undefined || box.current === null) return;
    const [rect] = element.getClientRects();
    const outer = box.current.getBoundingClientRect();
    if (rect === undefined) return;
    const left = Math.max(0, Math.min(rect.left - outer.left, outer.width - POPOVER_PIXELS));
    setChosen({ index: Number(element.dataset.token), left, top: rect.bottom - outer.top + 4 });
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === 'Escape') setChosen(null);
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const index = Math.max(0, Math.min(tokens.length - 1, (chosen?.index ?? -step) + step));
    choose(box.current?.querySelector(`[data-token="${index}"]`));
  };
  const pieces = Array.from({ length: Math.ceil(tokens.length / PIECE_TOKENS) }, (_, piece) => piece * PIECE_TOKENS);
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
      {pieces.map((from) => (
        <Piece key={from} tokens={tokens} from={from} to={Math.min(tokens.length, from + PIECE_TOKENS)} />
      ))}
      {chosen !== null && token !== undefined && <Alternatives token={token} left={chosen.left} top={chosen.top} />}
    </div>
  );
}

const POPOVER_PIXELS = 220;

function Piece({ tokens, from, to }: { tokens: readonly AnswerToken[]; from: number; to: number }): JSX.Element {
  // What is before `to` does not change while the answer grows.
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

function Alternatives({ token, left, top }: { token: AnswerToken; left: number; top: number }): JSX.Element {
  return (
    <div
      class="alternatives"
      style={{ left: `${left}px`, top: `${top}px`, width: `${POPOVER_PIXELS}px` }}
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
