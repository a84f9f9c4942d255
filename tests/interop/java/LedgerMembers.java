import com.alibaba.fastjson.JSON;
import io.openmessaging.storage.dledger.DLedgerConfig;
import io.openmessaging.storage.dledger.DLedgerServer;
import io.openmessaging.storage.dledger.MemberState;
import io.openmessaging.storage.dledger.client.DLedgerClient;
import io.openmessaging.storage.dledger.entry.DLedgerEntry;
import io.openmessaging.storage.dledger.protocol.AppendEntryRequest;
import io.openmessaging.storage.dledger.protocol.AppendEntryResponse;
import io.openmessaging.storage.dledger.protocol.GetEntriesResponse;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

/**
 * Members of one DLedger group in one process, without brokers.
 *
 * LedgerMembers GROUP FOLDER ID=PEERS...
 *
 * Each ID has its own list of peers, as "n0-127.0.0.1:port;n1-...", so that each direction of each pair may pass
 * through a relay. It obeys one command a line, and tells one line for each, until the end of its input:
 *
 *   role ID                  role ID LEADER|FOLLOWER|CANDIDATE TERM LEADER BEGIN END
 *   append ID COUNT SIZE     appended ID CODE INDEX TERM, of the last of COUNT bodies of SIZE bytes
 *   send ID                  sent CODE INDEX, of a body sent through Apache's client
 *   transfer FROM TO TERM    transferred CODE, asked through Apache's client
 *   get ID INDEX             entry CODE INDEX TERM BODY, asked through Apache's client
 *   body ID INDEX            entry 200 INDEX TERM BODY, from the log itself
 *   stop ID, start ID        stopped ID, started ID
 *   read CLASS BASE64        read JSON, a body as Apache's members read it; read nothing; or read failed
 *
 * With -Dledger.batch_push=true it pushes entries in batches, with -Dledger.heartbeat_ms a heartbeat is sent as often.
 */
public final class LedgerMembers {
    private static final int PATIENCE_SECONDS = 60;
    private static final int FILE_BYTES = 1 << 20;

    private final String group;
    private final String folder;
    private final Map<String, String> peers = new LinkedHashMap<>();
    private final Map<String, DLedgerServer> servers = new LinkedHashMap<>();

    private LedgerMembers(String group, String folder) {
        this.group = group;
        this.folder = folder;
    }

    public static void main(String[] args) throws Exception {
        LedgerMembers members = new LedgerMembers(args[0], args[1]);
        for (int i = 2; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            members.peers.put(pair[0], pair[1]);
            members.start(pair[0]);
        }
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = input.readLine()) != null) {
            try {
                System.out.println(members.obey(line.split(" ")));
            } catch (Exception e) {
                e.printStackTrace();
                System.exit(1);
            }
        }
        for (DLedgerServer server : members.servers.values()) {
            server.shutdown();
        }
        System.exit(0);
    }

    private void start(String id) {
        DLedgerConfig config = new DLedgerConfig();
        config.setGroup(group);
        config.setSelfId(id);
        config.setPeers(peers.get(id));
        config.setStoreBaseDir(folder);
        config.setStoreType(DLedgerConfig.FILE);
        config.setMappedFileSizeForEntryData(FILE_BYTES);
        config.setMappedFileSizeForEntryIndex(FILE_BYTES);
        config.setEnableBatchPush(Boolean.getBoolean("ledger.batch_push"));
        config.setHeartBeatTimeIntervalMs(Integer.getInteger("ledger.heartbeat_ms", 2000));
        DLedgerServer server = new DLedgerServer(config);
        server.startup();
        servers.put(id, server);
    }

    private String obey(String[] words) throws Exception {
        switch (words[0]) {
            case "role":
                return role(words[1]);
            case "append":
                return append(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]));
            case "send":
                return send(words[1]);
            case "transfer":
                return transfer(words[1], words[2], Long.parseLong(words[3]));
            case "get":
                return get(words[1], Long.parseLong(words[2]));
            case "body":
                return entry(200, servers.get(words[1]).getdLedgerStore().get(Long.parseLong(words[2])));
            case "stop":
                servers.get(words[1]).shutdown();
                return "stopped " + words[1];
            case "start":
                start(words[1]);
                return "started " + words[1];
            case "read":
                return read(words[1], words.length < 3 ? "" : words[2]);
            default:
                return "unknown " + words[0];
        }
    }

    private String role(String id) {
        MemberState state = servers.get(id).getMemberState();
        return String.join(" ", "role", id, state.getRole().toString(), String.valueOf(state.currTerm()),
            String.valueOf(state.getLeaderId()),
            String.valueOf(servers.get(id).getdLedgerStore().getLedgerBeginIndex()),
            String.valueOf(servers.get(id).getdLedgerStore().getLedgerEndIndex()));
    }

    private String append(String id, int count, int size) throws Exception {
        List<CompletableFuture<AppendEntryResponse>> waiting = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            AppendEntryRequest request = new AppendEntryRequest();
            request.setGroup(group);
            request.setRemoteId(id);
            byte[] body = new byte[size];
            for (int j = 0; j < size; j++) {
                body[j] = (byte) (i + j);
            }
            request.setBody(body);
            waiting.add(servers.get(id).handleAppend(request));
        }
        AppendEntryResponse response = null;
        for (CompletableFuture<AppendEntryResponse> each : waiting) {
            response = each.get(PATIENCE_SECONDS, TimeUnit.SECONDS);
        }
        return String.join(" ", "appended", id, String.valueOf(response.getCode()),
            String.valueOf(response.getIndex()), String.valueOf(response.getTerm()));
    }

    private String send(String id) {
        DLedgerClient client = new DLedgerClient(group, peers.get(id));
        client.startup();
        try {
            AppendEntryResponse response = client.append("sent".getBytes(StandardCharsets.UTF_8));
            return "sent " + response.getCode() + " " + response.getIndex();
        } finally {
            client.shutdown();
        }
    }

    private String transfer(String from, String to, long term) {
        DLedgerClient client = new DLedgerClient(group, peers.get(from));
        client.startup();
        try {
            return "transferred " + client.leadershipTransfer(from, to, term).getCode();
        } finally {
            client.shutdown();
        }
    }

    private String get(String id, long index) {
        DLedgerClient client = new DLedgerClient(group, peers.get(id));
        client.startup();
        try {
            GetEntriesResponse response = client.get(index);
            return entry(response.getCode(), response.getEntries() == null || response.getEntries().isEmpty()
                ? null : response.getEntries().get(0));
        } finally {
            client.shutdown();
        }
    }

    private static String entry(int code, DLedgerEntry entry) {
        if (entry == null) {
            return "entry " + code;
        }
        return String.join(" ", "entry", String.valueOf(code), String.valueOf(entry.getIndex()),
            String.valueOf(entry.getTerm()), Base64.getEncoder().encodeToString(entry.getBody()));
    }

    private static String read(String name, String encoded) throws ClassNotFoundException {
        Class<?> type = Class.forName("io.openmessaging.storage.dledger.protocol." + name);
        try {
            Object body = JSON.parseObject(Base64.getDecoder().decode(encoded), type);
            return body == null ? "read nothing" : "read " + JSON.toJSONString(body);
        } catch (RuntimeException e) {
            return "read failed";
        }
    }
}
