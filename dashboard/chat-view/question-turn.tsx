import type { JSX, TargetedSubmitEvent } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { BranchArrows } from './branch-arrows.js';
import { askQuestionAgain, editQuestion } from './chat-store.js';
import type { Question, Turn } from './conversation.js';

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

function QuestionEditor({ question }: { question: Question }): JSX.Element {
  const [text, setText] = useState(question.text);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => field.current?.focus(), []);
  const close = (): void => editQuestion(null);
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    if (text.trim() !== '' && askQuestionAgain(question.id, text, null)) close();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape' || event.isComposing) return;
    event.stopPropagation();
    close();
  };
  return (
    <li class="turn turn-question turn-edited">
      <form onSubmit={submit} onKeyDown={onKeyDown}>
        <textarea
          ref={field}
          class="field"
          rows={3}
          dir="auto"
          value={text}
          aria-label="The question"
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <div class="turn-buttons">
          <button type="submit" class="button button-main">
            Ask from here
          </button>
          <button type="button" class="button" onClick={close}>
            Leave it
          </button>
        </div>
      </form>
    </li>
  );
}
