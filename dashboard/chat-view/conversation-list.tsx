import type { JSX, TargetedEvent, TargetedSubmitEvent } from 'preact';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../shared/base/text/units.js';
import { formatDay } from '../format/quantities.js';
import type { ChatState } from './chat-state.js';
import {
  deleteWithUndo,
  exportConversation,
  importConversation,
  openConversation,
  renameConversation,
  searchConversations,
  setKeeping,
} from './conversation-actions.js';
import { foundPlace, KEPT_BYTES_LIMIT, listedHeads, titleOf, type KeptHead } from './kept-form.js';

/** Rows that are shown at first, and that each "Show more" adds. */
const SHOWN_ROWS = 30;
const SEARCH_PAUSE_MS = 200;

interface ConversationListProps {
  chat: ChatState;
  /** Called when a conversation was chosen. */
  onChosen: () => void;
}

/** The conversations of this browser: to open, search, rename, export and delete. */
export function ConversationList({ chat, onChosen }: ConversationListProps): JSX.Element {
  const [words, setWords] = useState('');
  const [most, setMost] = useState(SHOWN_ROWS);
  const search = useRef<HTMLInputElement>(null);
  const listed = listedHeads(chat.heads, chat.live.values(), Date.now());
  const found = useFound(words, chat.heads);
  const rows = words === '' ? listed : listed.filter((head) => placeIn(head, words, found) !== null);
  const remove = (ids: readonly string[]): void => {
    // The button that had the focus goes away.
    search.current?.focus();
    void deleteWithUndo(ids);
  };
  return (
    <section id="conversations" class="card conversations" aria-label="Conversations">
      <div class="conversations-tools">
        <input
          ref={search}
          class="field"
          type="search"
          value={words}
          placeholder="Search titles and texts"
          aria-label="Search conversations"
          onInput={(event) => setWords(event.currentTarget.value)}
        />
        <ImportButton onImported={onChosen} />
      </div>
      {rows.length === 0 && <p class="quiet">{words === '' ? 'No conversation yet.' : 'None has these words.'}</p>}
      <ul class="conversation-rows">
        {rows.slice(0, most).map((head) => (
          <ConversationRow
            key={head.id}
            head={head}
            place={words === '' ? '' : (placeIn(head, words, found) ?? '')}
            chat={chat}
            onChosen={onChosen}
            onDelete={() => remove([head.id])}
          />
        ))}
      </ul>
      {rows.length > most && (
        <button type="button" class="button" onClick={() => setMost(most + SHOWN_ROWS)}>
          Show more
        </button>
      )}
      <Keeping chat={chat} listed={listed} onDeleteAll={() => remove(listed.map(({ id }) => id))} />
    </section>
  );
}

/** Empty: its title has the words; null: it has them nowhere. */
function placeIn(head: KeptHead, words: string, found: ReadonlyMap<string, string>): string | null {
  return foundPlace(titleOf(head), words) === null ? (found.get(head.id) ?? null) : '';
}

/** The conversations with the words in their texts, soon after the words were typed. */
function useFound(words: string, heads: readonly KeptHead[]): ReadonlyMap<string, string> {
  const [found, setFound] = useState<ReadonlyMap<string, string>>(new Map());
  useEffect(() => {
    if (words === '') return;
    let isLate = false;
    const timer = window.setTimeout(() => {
      void searchConversations(words).then((next) => {
        if (!isLate) setFound(next);
      });
    }, SEARCH_PAUSE_MS);
    return () => {
      isLate = true;
      window.clearTimeout(timer);
    };
  }, [words, heads]);
  return found;
}

interface ConversationRowProps {
  head: KeptHead;
  /** The text around the words that are searched for; empty: none. */
  place: string;
  chat: ChatState;
  onChosen: () => void;
  onDelete: () => void;
}

function ConversationRow({ head, place, chat, onChosen, onDelete }: ConversationRowProps): JSX.Element {
  const [isRenamed, setRenamed] = useState(false);
  const { id } = head;
  const title = titleOf(head);
  const open = (): void => {
    void openConversation(id);
    onChosen();
  };
  if (isRenamed) return <RenamedRow head={head} onDone={() => setRenamed(false)} />;
  return (
    <li class="conversation-row">
      <button
        type="button"
        class="conversation-open"
        aria-current={chat.conversation.id === id ? 'true' : undefined}
        onClick={open}
      >
        <span class="conversation-title" dir="auto">
          {title}
        </span>
        {place !== '' && (
          <span class="small conversation-place" dir="auto">
            {place}
          </span>
        )}
        <span class="small quiet">{rowFacts(head, chat).join(' · ')}</span>
      </button>
      <span class="conversation-buttons">
        <RowButton words="Rename" title={title} onClick={() => setRenamed(true)} />
        <RowButton words="Export" title={title} onClick={() => void exportConversation(id)} />
        <RowButton words="Delete" title={title} onClick={onDelete} />
      </span>
    </li>
  );
}

function rowFacts(head: KeptHead, { heads, runningHere, runningElsewhere }: ChatState): string[] {
  const isAnswered = [...runningHere, ...runningElsewhere].some(({ conversation }) => conversation === head.id);
  const isKept = heads.some(({ id, deletedMs }) => id === head.id && deletedMs === null);
  return [
    `${formatDay(head.changedMs)}, ${new Date(head.changedMs).toLocaleTimeString('en-GB', { timeStyle: 'short' })}`,
    formatBytes(head.bytes),
    ...(isAnswered ? ['an answer is under way'] : []),
    ...(isKept ? [] : ['in this tab alone']),
  ];
}

function RowButton({ words, title, onClick }: { words: string; title: string; onClick: () => void }): JSX.Element {
  return (
    <button type="button" class="button turn-button" aria-label={`${words}: ${title}`} onClick={onClick}>
      {words}
    </button>
  );
}

function RenamedRow({ head, onDone }: { head: KeptHead; onDone: () => void }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.select(), []);
  const submit = (event: TargetedSubmitEvent<HTMLFormElement>): void => {
    event.preventDefault();
    void renameConversation(head.id, field.current?.value ?? '');
    onDone();
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key !== 'Escape') return;
    event.stopPropagation();
    onDone();
  };
  return (
    <li class="conversation-row">
      <form class="conversation-rename" onSubmit={submit} onKeyDown={onKeyDown}>
        <input ref={field} class="field" aria-label="The title" defaultValue={titleOf(head)} />
        <button type="submit" class="button button-main">
          Rename
        </button>
        <button type="button" class="button" onClick={onDone}>
          Leave it
        </button>
      </form>
    </li>
  );
}

function ImportButton({ onImported }: { onImported: () => void }): JSX.Element {
  const field = useRef<HTMLInputElement>(null);
  const onChange = ({ currentTarget }: TargetedEvent<HTMLInputElement>): void => {
    const file = currentTarget.files?.[0];
    if (file === undefined) return;
    void importConversation(file).then((isImported) => {
      if (isImported) onImported();
    });
    // The same file may be chosen again.
    currentTarget.value = '';
  };
  return (
    <>
      <input
        ref={field}
        class="unseen"
        type="file"
        accept=".jsonl,.json,application/json"
        tabIndex={-1}
        aria-label="File of a conversation"
        onChange={onChange}
      />
      <button
        type="button"
        class="button"
        title="A file that the page has exported, or that /save of `odmoe chat` wrote"
        onClick={() => field.current?.click()}
      >
        Import
      </button>
    </>
  );
}

interface KeepingProps {
  chat: ChatState;
  listed: readonly KeptHead[];
  onDeleteAll: () => void;
}

/** Whether conversations are kept, where, and how much they take. */
function Keeping({ chat, listed, onDeleteAll }: KeepingProps): JSX.Element {
  const used = listed.reduce((sum, head) => sum + head.bytes, 0);
  return (
    <div class="conversations-keeping small">
      <label>
        <input type="checkbox" checked={chat.keeps} onChange={(event) => setKeeping(event.currentTarget.checked)} />{' '}
        Keep conversations and settings in this browser
      </label>
      <p class="quiet">
        {chat.keeps
          ? `They are in this browser alone, and whoever uses it can read them. ${formatBytes(used)} of ${formatBytes(KEPT_BYTES_LIMIT)} are used.`
          : 'What you ask now is forgotten when the page is loaded again. What was kept before stays until you delete it.'}
      </p>
      {listed.length > 0 && (
        <button type="button" class="button turn-button" onClick={onDeleteAll}>
          {listed.length === 1 ? 'Delete the conversation' : `Delete all ${listed.length}`}
        </button>
      )}
    </div>
  );
}
