import type { JSX, TargetedSubmitEvent } from 'preact';
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { BranchArrows } from './branch-arrows.js';
import { editorAction } from './chat-keys.js';
import { askQuestionAgain, editQuestion } from './chat-store.js';
import type { Question, Turn } from './conversation.js';
import { pressedKey } from './use-chat-keys.js';

interface QuestionTurnProps {
  question: Question;
  siblings: readonly Turn[];
  /** Its editor is open. */
  isEdited: boolean;
}

export function QuestionTurn({ question, siblings, isEdited }: QuestionTurnProps): JSX.Element {
  if (isEdited) return <QuestionEditor key={question.id} question={question} />;
  return (
    <li class="turn turn-question">
      <p class="turn-text" dir="auto">
        {question.text}
      </p>
      <div class="turn-buttons">
        <BranchArrows turn={question} siblings={siblings} />
        <button type="button" class="button turn-button" onClick={() => editQuestion(question.id)}>
          Edit
        </button>
      </div>
    </li>
  );
}

/** What was typed in editors that were left, by ids of their questions. It stays in the page's memory. */
const drafts = new Map<number, string>();

function QuestionEditor({ question }: { question: Question }): JSX.Element {
  const [text, setText] = useState(drafts.get(question.id) ?? question.text);
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  const type = (next: string): void => {
    drafts.set(question.id, next);
    setText(next);
  };
  const leave = (): void => {
    drafts.delete(question.id);
    editQuestion(null);
  };
  const send = (): void => {
    if (text.trim() !== '' && askQuestionAgain(question.id, text, null)) leave();
  };
  const onSubmit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    send();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const action = editorAction(pressedKey(event), event.target === field.current);
    if (action === null) return;
    event.preventDefault();
    event.stopPropagation();
    if (action === 'send') send();
    // The draft stays for the next time.
    else editQuestion(null);
  };
  return (
    <li class="turn turn-question turn-edited">
      <form onSubmit={onSubmit} onKeyDown={onKeyDown}>
        <textarea
          ref={field}
          class="field"
          rows={3}
          dir="auto"
          value={text}
          aria-label="The question"
          aria-keyshortcuts="Enter Escape"
          onInput={(event) => type(event.currentTarget.value)}
        />
        <div class="turn-buttons">
          <button type="submit" class="button button-main">
            Ask from here
          </button>
          <button type="button" class="button" onClick={leave}>
            Leave it
          </button>
        </div>
      </form>
    </li>
  );
}
