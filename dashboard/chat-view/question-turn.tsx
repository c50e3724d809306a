import type { JSX, TargetedSubmitEvent } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import { askQuestionAgain, editIsOpen, useChat } from './chat-store.js';
import type { Question } from './conversation.js';

export function QuestionTurn({ question }: { question: Question }): JSX.Element {
  const [text, setText] = useState<string | null>(null);
  const isToBeEdited = useChat().editedId === question.id;
  useEffect(() => {
    if (!isToBeEdited) return;
    setText(question.text);
    editIsOpen();
  }, [isToBeEdited]);
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    if (text === null || text.trim() === '') return;
    if (askQuestionAgain(question.id, text, null)) setText(null);
  };
  if (text === null) {
    return (
      <li class="turn turn-question">
        <p class="turn-text">{question.text}</p>
        <button type="button" class="button turn-button" onClick={() => setText(question.text)}>
          Edit
        </button>
      </li>
    );
  }
  return (
    <li class="turn turn-question turn-edited">
      <form onSubmit={submit}>
        <textarea
          class="field"
          rows={3}
          value={text}
          aria-label="The question"
          ref={focusOnce}
          onInput={(event) => setText(event.currentTarget.value)}
        />
        <div class="turn-buttons">
          <button type="submit" class="button button-main">
            Ask from here
          </button>
          <button type="button" class="button" onClick={() => setText(null)}>
            Leave it
          </button>
        </div>
      </form>
    </li>
  );
}

/** The editor has the focus when it opens. */
function focusOnce(field: HTMLTextAreaElement | null): void {
  field?.focus();
}
