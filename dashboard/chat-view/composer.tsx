import type { JSX, RefObject, TargetedSubmitEvent } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { FileIcon, KeysIcon } from '../elements/icons.js';
import { askQuestion, stopAnswer } from './chat-store.js';
import { ContextMeter } from './context-meter.js';
import { runningAnswer, type PageConversation } from './conversation.js';
import { KeysList } from './keys-list.js';
import { withBlock } from './text-files.js';
import { useChatKeys } from './use-chat-keys.js';
import { useDroppedFiles } from './use-dropped-files.js';
import { useKeyboardPlace } from './use-keyboard-place.js';

interface ComposerProps {
  conversation: PageConversation;
  /** The reason why the question was not sent. */
  refusal: string;
}

/** What was typed stays while another view is shown. */
let draft = '';

export function Composer({ conversation, refusal }: ComposerProps): JSX.Element {
  const [text, setShownText] = useState(draft);
  const [problem, setProblem] = useState('');
  const area = useRef<HTMLTextAreaElement>(null);
  const keys = useRef<HTMLDialogElement>(null);
  const isRunning = runningAnswer(conversation) !== null;
  const setText = (next: string): void => {
    draft = next;
    setShownText(next);
    setProblem('');
  };
  const send = (): void => {
    if (isRunning || text.trim() === '') return;
    if (askQuestion(text)) setText('');
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    send();
  };
  const insert = (blocks: string, wrong: string): void => {
    const field = area.current;
    if (field === null) return;
    // The files were read meanwhile, so that the text may be another one now.
    if (blocks !== '') setText(withBlock(field.value, field.selectionStart, field.selectionEnd, blocks));
    setProblem(wrong);
    field.focus();
  };
  const isEmpty = conversation.turns.length === 0;
  useGrownArea(area, text, isEmpty);
  useComposerFocus(area, isRunning, isEmpty);
  useKeyboardPlace();
  useChatKeys({ area, isRunning, send, showKeys: () => keys.current?.showModal() });
  const files = useDroppedFiles(insert, text.length);
  return (
    <form class={files.isOver ? 'composer composer-over' : 'composer'} onSubmit={onSubmit}>
      <p class="composer-refusal problem-text small" role="alert">
        {problem === '' ? refusal : problem}
      </p>
      <textarea
        ref={area}
        class="field"
        rows={1}
        dir="auto"
        value={text}
        placeholder={files.isOver ? 'Drop the file here' : 'Your question'}
        aria-label="Your question"
        aria-keyshortcuts="Enter ArrowUp"
        onInput={(event) => setText(event.currentTarget.value)}
        onPaste={files.onPaste}
      />
      <div class="composer-foot">
        <FileButton onFiles={files.take} />
        <KeysButton onClick={() => keys.current?.showModal()} />
        <ContextMeter conversation={conversation} typed={text} />
        <SendButton isRunning={isRunning} isEmpty={text.trim() === ''} />
      </div>
      <KeysList dialog={keys} />
    </form>
  );
}

function KeysButton({ onClick }: { onClick: () => void }): JSX.Element {
  return (
    <button type="button" class="icon-button" aria-label="Keys" aria-keyshortcuts="?" title="Keys" onClick={onClick}>
      <KeysIcon />
    </button>
  );
}

function SendButton({ isRunning, isEmpty }: { isRunning: boolean; isEmpty: boolean }): JSX.Element {
  if (!isRunning) {
    return (
      <button key="ask" type="submit" class="button button-main" disabled={isEmpty}>
        Ask
      </button>
    );
  }
  return (
    <button key="stop" type="button" class="button" aria-keyshortcuts="Escape" onClick={stopAnswer}>
      Stop
    </button>
  );
}

/** Opens the browser's choice of files. Any may be chosen: whether one is text is seen by its bytes, not by its name. */
function FileButton({ onFiles }: { onFiles: (files: readonly File[]) => void }): JSX.Element {
  const input = useRef<HTMLInputElement>(null);
  const choose = (field: HTMLInputElement): void => {
    onFiles([...(field.files ?? [])]);
    // The same file can be chosen again.
    field.value = '';
  };
  return (
    <>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label="Text files"
        onChange={(event) => choose(event.currentTarget)}
      />
      <button
        type="button"
        class="icon-button"
        aria-label="Add a text file"
        title="Add a text file"
        onClick={() => input.current?.click()}
      >
        <FileIcon />
      </button>
    </>
  );
}

/** The page counts as scrolled to its end up to this distance. */
const AT_END_PIXELS = 4;

/** Makes the field as high as its text; its style sheet bounds that. A conversation that is scrolled to its end stays so; an empty one has no end. */
function useGrownArea(area: RefObject<HTMLTextAreaElement | null>, text: string, isEmpty: boolean): void {
  useLayoutEffect(() => {
    const field = area.current;
    if (field === null) return;
    const { scrollHeight, clientHeight, scrollTop } = document.documentElement;
    field.style.height = 'auto';
    const { borderTopWidth, borderBottomWidth } = getComputedStyle(field);
    field.style.height = `${field.scrollHeight + parseFloat(borderTopWidth) + parseFloat(borderBottomWidth)}px`;
    if (isEmpty || scrollHeight - clientHeight - scrollTop > AT_END_PIXELS) return;
    window.scrollTo({ top: document.documentElement.scrollHeight });
  }, [area, text, isEmpty]);
}

/**
 * Puts the focus into the field when the view opens, after an answer and in a new chat. It never takes it from another field or a chosen
 * element, and not on a touch screen, where the keyboard would cover the answer.
 */
function useComposerFocus(area: RefObject<HTMLTextAreaElement | null>, isRunning: boolean, isEmpty: boolean): void {
  useEffect(() => {
    const { activeElement } = document;
    const isFree =
      activeElement === null ||
      activeElement === document.body ||
      activeElement.closest('.composer, .chat-head, .tabs') !== null;
    if (isRunning || !isFree || matchMedia('(pointer: coarse)').matches) return;
    area.current?.focus({ preventScroll: true });
  }, [area, isRunning, isEmpty]);
}
