import type { JSX } from 'preact';
import { update, type ChatState } from './chat-state.js';
import { exportConversation, keepDeleted } from './conversation-actions.js';

/** Notes about the conversations: problems, and an Undo for the last action. */
export function ChatNotes({
  keepingProblem,
  keeps,
  isDeletedElsewhere,
  note,
  undos,
  conversation,
}: ChatState): JSX.Element {
  const hasTurns = conversation.all.length > 0;
  return (
    <div class="chat-notes">
      {keeps && keepingProblem !== '' && (
        <p class="chat-note chat-note-bad" role="alert">
          <span>{keepingProblem}</span>
          {hasTurns && <NoteButton words="Export this one" onClick={() => void exportConversation(conversation.id)} />}
        </p>
      )}
      {isDeletedElsewhere && (
        <p class="chat-note chat-note-bad" role="alert">
          <span>Another tab has deleted this conversation. What you see is in this tab alone.</span>
          <NoteButton words="Keep it" onClick={keepDeleted} />
        </p>
      )}
      <div role="status">
        {note !== '' && (
          <p class="chat-note">
            <span>{note}</span>
            <NoteButton words="Close" onClick={() => update({ note: '' })} />
          </p>
        )}
        <UndoNote undos={undos} />
      </div>
    </div>
  );
}

function UndoNote({ undos }: Pick<ChatState, 'undos'>): JSX.Element | null {
  const last = undos.at(-1);
  if (last === undefined) return null;
  const close = (): void => update({ undos: undos.slice(0, -1) });
  const undo = (): void => {
    close();
    last.undo();
  };
  return (
    <p class="chat-note">
      <span>{last.words}</span>
      <span class="chat-note-buttons">
        <NoteButton words="Undo" onClick={undo} />
        <NoteButton words="Close" onClick={close} />
      </span>
    </p>
  );
}

function NoteButton({ words, onClick }: { words: string; onClick: () => void }): JSX.Element {
  return (
    <button type="button" class="button turn-button" onClick={onClick}>
      {words}
    </button>
  );
}
