import { useEffect, useRef, useState } from 'preact/hooks';
import { formatBytes } from '../../shared/base/text/units.js';
import {
  FILE_BYTES_LIMIT,
  fencedFile,
  FILES_LIMIT,
  QUESTION_CHARACTERS_LIMIT,
  readTextFile,
  type ReadFile,
} from './text-files.js';

/** Takes the blocks of the files that are texts, and the reasons why others are not taken. Either may be empty. */
type Insert = (blocks: string, problems: string) => void;

interface DroppedFiles {
  /** Files are held over the view. */
  isOver: boolean;
  take: (files: readonly File[]) => void;
  onPaste: (event: ClipboardEvent) => void;
}

/** Files that are dropped anywhere in the view, pasted, or given to `take`. `typedCharacters`: length of the question so far. */
export function useDroppedFiles(insert: Insert, typedCharacters: number): DroppedFiles {
  const [isOver, setOver] = useState(false);
  const take = (files: readonly File[]): void => {
    void readFiles(files, typedCharacters).then(({ blocks, problems }) => insert(blocks, problems));
  };
  const newest = useRef(take);
  newest.current = take;
  useEffect(() => {
    const onDragOver = (event: DragEvent): void => {
      if (!hasFiles(event.dataTransfer)) return;
      // A browser opens a dropped file in place of the page otherwise.
      event.preventDefault();
      setOver(true);
    };
    const onDragLeave = (event: DragEvent): void => {
      if (event.relatedTarget === null) setOver(false);
    };
    const onDrop = (event: DragEvent): void => {
      if (!hasFiles(event.dataTransfer)) return;
      event.preventDefault();
      setOver(false);
      newest.current([...(event.dataTransfer?.files ?? [])]);
    };
    document.addEventListener('dragover', onDragOver);
    document.addEventListener('dragleave', onDragLeave);
    document.addEventListener('drop', onDrop);
    return () => {
      document.removeEventListener('dragover', onDragOver);
      document.removeEventListener('dragleave', onDragLeave);
      document.removeEventListener('drop', onDrop);
    };
  }, []);
  const onPaste = (event: ClipboardEvent): void => {
    const data = event.clipboardData;
    // Office programs put a picture beside the text that is meant.
    if (data === null || !hasFiles(data) || data.types.includes('text/plain')) return;
    event.preventDefault();
    take([...data.files]);
  };
  return { isOver, take, onPaste };
}

function hasFiles(data: DataTransfer | null): boolean {
  return data?.types.includes('Files') ?? false;
}

async function readFiles(
  files: readonly File[],
  typedCharacters: number,
): Promise<{ blocks: string; problems: string }> {
  const problems: string[] = [];
  let blocks = '';
  if (files.length > FILES_LIMIT) problems.push(`Only the first ${FILES_LIMIT} of ${files.length} files were taken.`);
  for (const file of files.slice(0, FILES_LIMIT)) {
    const read = await readFile(file);
    const block = 'text' in read ? fencedFile(file.name, read.text) : '';
    if ('problem' in read) problems.push(read.problem);
    else if (typedCharacters + blocks.length + block.length <= QUESTION_CHARACTERS_LIMIT) blocks += block;
    else problems.push(`${file.name} has no room: a question holds ${QUESTION_CHARACTERS_LIMIT} characters.`);
  }
  return { blocks, problems: problems.join(' ') };
}

async function readFile(file: File): Promise<ReadFile> {
  if (file.size > FILE_BYTES_LIMIT) {
    const [size, limit] = [formatBytes(file.size), formatBytes(FILE_BYTES_LIMIT)];
    return { problem: `${file.name} has ${size}; a file may have ${limit}. Paste the part that matters.` };
  }
  try {
    return readTextFile(file.name, new Uint8Array(await file.arrayBuffer()));
  } catch {
    return { problem: `${file.name} cannot be read: it is a folder, or it has gone.` };
  }
}
